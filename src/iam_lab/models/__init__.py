"""The networks of the paper, one file each, and :func:`build_model`, which finds them by name."""

from typing import TYPE_CHECKING

from iam_lab.lazy import exports

if TYPE_CHECKING:
    from iam_lab.models.encoder import Encoder as Encoder
    from iam_lab.models.mlp import MLP as MLP
    from iam_lab.models.registry import build_model as build_model
    from iam_lab.models.registry import model_names as model_names
    from iam_lab.models.resnet18 import ResNet18 as ResNet18
    from iam_lab.models.six_cnn import SixCNN as SixCNN
    from iam_lab.models.wide_resnet import WideResNet as WideResNet

__getattr__, __dir__ = exports(
    __name__,
    {
        "Encoder": ".encoder",
        "MLP": ".mlp",
        "ResNet18": ".resnet18",
        "SixCNN": ".six_cnn",
        "WideResNet": ".wide_resnet",
        "build_model": ".registry",
        "model_names": ".registry",
    },
)
