"""Data sets, and the batches made of them."""

from typing import TYPE_CHECKING

from iam_lab.lazy import exports

if TYPE_CHECKING:
    from iam_lab.data.catalogue import CATALOGUE as CATALOGUE
    from iam_lab.data.catalogue import DataSpec as DataSpec
    from iam_lab.data.catalogue import data_root as data_root
    from iam_lab.data.catalogue import spec_of as spec_of
    from iam_lab.data.errors import DataError as DataError
    from iam_lab.data.hub import fetch as fetch
    from iam_lab.data.image_set import ImageSet as ImageSet
    from iam_lab.data.image_set import load as load
    from iam_lab.data.inspection import SplitReport as SplitReport
    from iam_lab.data.inspection import check as check
    from iam_lab.data.inspection import location as location
    from iam_lab.data.memory import DeviceData as DeviceData
    from iam_lab.data.source import open_source as open_source
    from iam_lab.data.splits import hold_out as hold_out
    from iam_lab.data.splits import labelled_subset as labelled_subset
    from iam_lab.data.splits import unlabelled_subset as unlabelled_subset
    from iam_lab.data.streaming import Stream as Stream

__getattr__, __dir__ = exports(
    __name__,
    {
        "CATALOGUE": ".catalogue",
        "DataError": ".errors",
        "DataSpec": ".catalogue",
        "DeviceData": ".memory",
        "ImageSet": ".image_set",
        "SplitReport": ".inspection",
        "Stream": ".streaming",
        "check": ".inspection",
        "data_root": ".catalogue",
        "fetch": ".hub",
        "hold_out": ".splits",
        "labelled_subset": ".splits",
        "load": ".image_set",
        "location": ".inspection",
        "open_source": ".source",
        "spec_of": ".catalogue",
        "unlabelled_subset": ".splits",
    },
)
