"""Each model is exactly the one that is named: weights, shapes, and what the library needs of it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.func import functional_call, jvp

from iam_lab.lazy import MissingExtraError
from iam_lab.models import MLP, Encoder, ResNet18, SixCNN, WideResNet, build_model, model_names, registry


def weights(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# name, options, weights for ten classes and images [3, 32, 32] (the MLP: for [1, 8, 8])
COUNTS = [
    ("6cnn", {}, 511_926),
    ("wrn-16-8", {}, 10_961_370),
    ("wrn-28-2", {}, 1_467_610),
    ("wrn-28-8", {}, 23_354_842),
    ("wrn-28-10", {}, 36_479_194),
    ("wrn-16-8", {"extra_block": True}, 17_158_106),
    ("wrn-28-2", {"extra_block": True}, 1_855_578),
    ("wrn-28-8", {"extra_block": True}, 29_551_578),
    ("wrn-28-10", {"extra_block": True}, 46_160_474),
    ("resnet18-cifar", {}, 11_173_962),
    ("vit-tiny-4", {}, 5_362_762),
    ("mixer-tiny-4", {}, 5_447_306),
]


@pytest.mark.parametrize(("name", "options", "expected"), COUNTS)
def test_the_number_of_weights(name, options, expected):
    with torch.device("meta"):
        model = build_model(name, classes=10, **options)
    assert weights(model) == expected


def test_the_toy_has_the_papers_number_of_weights():
    assert weights(MLP()) == 5393
    assert weights(build_model("mlp", classes=3, channels=2, image_size=1)) == 5393


SMALL = [
    ("6cnn", {}, 100),
    ("mlp", {"hidden": (11,), "activation": "tanh"}, 11),
    ("resnet18-cifar", {"width": 4}, 32),
    ("wrn-10-1", {}, 64),
    ("wrn-10-2", {"dropout": 0.3, "extra_block": True}, 128),
]


@pytest.mark.parametrize(("name", "options", "features"), SMALL)
@pytest.mark.parametrize(("classes", "channels", "size"), [(10, 3, 32), (7, 1, 28), (10, 1, 8)])
def test_shapes(name, options, features, classes, channels, size):
    model = build_model(name, classes=classes, channels=channels, image_size=size, **options)
    x = torch.randn(3, channels, size, size)
    assert isinstance(model, Encoder)
    assert model(x).shape == (3, classes)
    assert model.features(x).shape == (3, features) == (3, model.feature_size)


# PyTorch's own forward-mode rules are scripted on their first use.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize(("name", "options", "features"), SMALL)
def test_functional_call_and_forward_mode_agree_with_finite_differences(name, options, features):
    torch.manual_seed(0)
    model = build_model(name, classes=4, channels=3, image_size=16, **options).double().eval()
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    theta = {key: value.detach() for key, value in model.named_parameters()}
    delta = {key: torch.randn_like(value) * 1e-6 for key, value in theta.items()}

    def f(parameters):
        return functional_call(model, parameters, (x,))

    output, tangent = jvp(f, (theta,), (delta,))
    difference = f({key: theta[key] + delta[key] for key in theta}) - output
    torch.testing.assert_close(tangent, difference, rtol=1e-2, atol=1e-8)


@pytest.mark.parametrize(("name", "options", "features"), SMALL)
def test_channels_last_is_kept_and_changes_nothing(name, options, features):
    torch.manual_seed(0)
    model = build_model(name, classes=4, channels=3, image_size=16, **options).double().eval()
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    expected = model(x)
    layouts = []
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(
                lambda _m, _i, out: layouts.append(out.is_contiguous(memory_format=torch.channels_last))
            )
    found = model.to(memory_format=torch.channels_last)(x.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(found, expected)
    assert all(layouts)


@pytest.mark.parametrize(("name", "options", "features"), SMALL)
def test_one_graph_without_breaks(name, options, features):
    model = build_model(name, classes=4, channels=3, image_size=16, **options).eval()
    x = torch.randn(2, 3, 16, 16)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), model(x))


def test_a_wide_residual_unit_by_hand():
    torch.manual_seed(0)
    unit = WideResNet(10, 2).groups[1][0].eval()
    x = torch.randn(2, 32, 8, 8)
    a = torch.relu(unit.norm1(x))
    by_hand = unit.shortcut(a) + unit.conv2(torch.relu(unit.norm2(unit.conv1(a))))
    torch.testing.assert_close(unit(x), by_hand)
    assert unit(x).shape == (2, 64, 4, 4)


def test_resnet18_is_torchvisions_with_another_stem():
    from torchvision.models import resnet18

    torch.manual_seed(0)
    ours, theirs = ResNet18(), resnet18(num_classes=10)
    theirs.conv1, theirs.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    theirs.load_state_dict(
        dict(zip(theirs.state_dict(), _in_order_of(theirs, ours.state_dict()), strict=True))
    )
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def _in_order_of(theirs, ours):
    """Both list stem, stages and head in the same order, with the same tensors in each."""
    assert [value.shape for value in theirs.state_dict().values()] == [value.shape for value in ours.values()]
    return ours.values()


def test_the_start_has_the_scale_of_he():
    torch.manual_seed(0)
    model = WideResNet(16, 4)
    conv = model.groups[2][0].conv2
    assert conv.weight.std().item() == pytest.approx((2 / (9 * 256)) ** 0.5, rel=0.02)
    assert model.head.bias.abs().max() == 0


def test_the_same_seed_builds_the_same_model():
    built = []
    for _ in range(2):
        torch.manual_seed(3)
        built.append(build_model("wrn-10-1", classes=10).state_dict())
    assert all(torch.equal(built[0][key], built[1][key]) for key in built[0])


def test_any_timm_model_by_name():
    vit = build_model("timm:vit_tiny_patch16_224", classes=5, channels=1, image_size=32, depth=2)
    assert vit(torch.zeros(2, 1, 32, 32)).shape == (2, 5)
    convolutional = build_model("timm:test_resnet", classes=5, image_size=64)
    assert convolutional(torch.zeros(2, 3, 64, 64)).shape == (2, 5)


def test_unknown_names_list_the_near_ones():
    with pytest.raises(ValueError, match=r"no model 'wrn-28-1O'.*Did you mean wrn-28-10"):
        build_model("wrn-28-1O", classes=10)
    with pytest.raises(ValueError, match=r"no model 'timm:vit_tiny_patch16'.*timm:vit_tiny_patch16_"):
        build_model("timm:vit_tiny_patch16", classes=10)
    with pytest.raises(ValueError, match=r"no option 'droput'; it has depth, width, dropout, extra_block"):
        build_model("wrn-16-8", classes=10, droput=0.1)
    with pytest.raises(ValueError, match="'6cnn' has no option 'hidden'; it has none"):
        build_model("6cnn", classes=10, hidden=3)
    with pytest.raises(ValueError, match="classes=0"):
        build_model("6cnn", classes=0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: WideResNet(15, 8), "6 n \\+ 4; found 15. Write 10 or 16"),
        (lambda: WideResNet(3, 8), "found 3. Write 10"),
        (lambda: WideResNet(16, 0), "width .* found 0"),
        (lambda: ResNet18(width=0), "width .* found 0"),
        (lambda: SixCNN(image_size=3), "image_size >= 4; found 3"),
        (lambda: MLP((3,)), "found \\(3,\\)"),
        (lambda: MLP((3, 2), "sine"), "activation is one of relu, tanh, gelu, silu; found 'sine'"),
    ],
)
def test_errors_say_what_to_write(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(
        MissingExtraError, match=r"'vit-tiny-4' needs timm.*pip install 'torch-iam\[vision\]'"
    ):
        build_model("vit-tiny-4", classes=10)


def test_names_are_listed_and_the_package_is_light():
    assert set(registry.BUILDERS) < set(model_names())
    code = "import sys, iam_lab.models, iam_lab.data; print('torch' in sys.modules, 'timm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
