"""Descriptors as PyTorch modules, and inside kornia."""

import numpy as np
import pytest
import torch

import caloric
import photographs
from brick import views
from caloric.interop import torch as interop
from torch_device import DEVICE, HERE, photograph


@pytest.mark.parametrize("name", [n for n in caloric.descriptors() if n != "caloric"])
def test_modules_describe_patches_and_have_gradients(name):
    torch.manual_seed(0)
    module = interop.Descriptor(name)
    patches = torch.rand(6, 1, 32, 32)
    expected = caloric.describe_patches(patches[:, 0].numpy(), name)
    np.testing.assert_allclose(module(patches).numpy(), expected, atol=1e-5)
    assert "table" in module.state_dict()
    flat = torch.full((2, 1, 32, 32), 0.5, requires_grad=True)
    module(flat).sum().backward()
    assert torch.isfinite(flat.grad).all()
    small = interop.Descriptor(name, patch_size=8).double()
    patches = torch.rand(2, 1, 8, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(small, (patches,), eps=1e-6, atol=1e-5, fast_mode=True)


@pytest.mark.parametrize("name", caloric.descriptors())
def test_modules_have_gradients_with_respect_to_frames_and_pixels(name):
    torch.manual_seed(0)
    image = torch.nn.functional.avg_pool2d(torch.rand(1, 1, 34, 34, dtype=torch.float64), 3, 1)
    laf = torch.tensor([[[[7.8, 1.2, 15.3], [-1.8, 6.6, 16.1]]]], dtype=torch.float64)
    laf.requires_grad_()
    module = interop.Descriptor(name).double()
    assert torch.autograd.gradcheck(
        lambda f: module(image, f), (laf,), eps=1e-7, atol=1e-4, fast_mode=True
    )
    pixels = image.clone().requires_grad_()
    weights = torch.rand(module.dimension, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((module(pixels, laf) @ weights).sum(), pixels)
    direction = torch.rand_like(pixels)
    with torch.no_grad():
        step = 1e-6
        ahead, behind = (module(image + s * step * direction, laf) @ weights for s in (1, -1))
    assert (gradient * direction).sum().item() == pytest.approx(
        (ahead - behind).item() / (2 * step), rel=1e-3, abs=1e-6
    )
    flat = torch.full((1, 1, 32, 32), 0.5, dtype=torch.float64, requires_grad=True)
    module(flat, laf).sum().backward()
    assert torch.isfinite(flat.grad).all()


@pytest.mark.parametrize("name", ["caloric", "heat"])
def test_modules_describe_frames_like_the_pipeline(name):
    image = photograph("camera")
    frames = caloric.detect(image, max_features=40)
    pixels = torch.from_numpy(image)[None, None].float() / 255
    values = interop.Descriptor(name)(pixels, torch.from_numpy(frames.to_laf()))
    expected = caloric.describe(image, frames, name)
    assert values.shape == (1, 40, expected.shape[1])
    assert ((values[0].numpy() * expected).sum(1) >= 0.9999).all()


def test_modules_do_not_share_their_tables():
    module = interop.Descriptor("sift")
    module.load_state_dict({k: 0 * v for k, v in module.state_dict().items()})
    assert interop.Descriptor("sift").table.abs().max() > 0


def test_modules_accept_empty_half_precision_and_nan_input():
    module = interop.Descriptor("sift")
    image = torch.rand(1, 1, 40, 40, generator=torch.Generator().manual_seed(0))
    assert module(image[:0, :, :32, :32]).shape == (0, 128)
    assert module(image, torch.zeros(1, 0, 2, 3)).shape == (1, 0, 128)
    lafs = torch.tensor([[[[18.0, 0, 20], [0, 18, 20]], [[torch.nan, 0, 20], [0, 18, 20]]]])
    single = module(image, lafs)[0]
    assert (single[1] == 0).all()
    half = module.half()(image.half(), lafs.half())[0]
    assert half.dtype == torch.float16
    np.testing.assert_allclose(half[0].float(), single[0], atol=2e-3)
    double = interop.Descriptor("sift")(image.double(), lafs.double())[0]
    np.testing.assert_allclose(double[0], single[0], atol=1e-5)


def test_invalid_input_of_modules_is_an_error():
    module = interop.Descriptor("sift")
    for arguments, match in (
        ((torch.rand(3, 32, 32),), "expected shape"),
        ((torch.rand(3, 1, 16, 16),), "patch_size=32"),
        ((torch.rand(3, 1, 32, 32), torch.rand(2, 4, 2, 3)), "lafs"),
    ):
        with pytest.raises(caloric.InputError, match=match):
            module(*arguments)
    with pytest.raises(caloric.InputError, match="divide by 255"):
        module(torch.zeros(1, 1, 32, 32, dtype=torch.uint8))
    with pytest.raises(caloric.InputError, match="patch_size"):
        interop.Descriptor("sift", patch_size=1)
    with pytest.raises(caloric.InputError, match="divide by 255"):
        interop.extract(torch.full((1, 1, 30, 30), 99.0))
    with pytest.raises(caloric.InputError, match="rings"):
        interop.Descriptor("caloric")(torch.rand(1, 1, 32, 32))
    with pytest.raises(caloric.InputError, match="tensor"):
        interop.extract(np.zeros((1, 1, 30, 30)))


def test_features_of_a_batch_are_tensors():
    image = photograph()
    images = torch.from_numpy(np.stack([image, image[::-1].copy()]))[:, None].to(DEVICE)
    lafs, scores, values = interop.extract(images, max_features=120)
    assert lafs.shape == (2, 120, 2, 3)
    assert values.shape == (2, 120, 128)
    single = caloric.extract(image, max_features=120, device=HERE)
    # The batch size affects the rounding of matrix products, which use half precision on a GPU.
    atol, count = 1e-5 if HERE == "torch:cpu" else 1e-3, len(single)
    np.testing.assert_allclose(single.descriptors, values[0, :count].cpu().numpy(), atol=atol)
    np.testing.assert_array_equal(single.scores, scores[0, :count].cpu().numpy())


@pytest.mark.filterwarnings("default")
def test_kornia_cuts_patches_of_6_sigma():
    feature = pytest.importorskip("kornia.feature")
    # A ramp along the orientation of the frame: from -6 at the left edge to 6 at the right edge.
    frames = caloric.Frames.from_xysa([40.0], [30.0], [3.0], [0.6])
    y, x = np.mgrid[:60, :80]
    ramp = ((x - 40) * np.cos(0.6) + (y - 30) * np.sin(0.6)) / 3
    pixels = torch.from_numpy(ramp)[None, None].float()
    lafs = torch.from_numpy(frames.to_laf())
    patch = feature.extract_patches_from_pyramid(pixels, lafs, PS=32)[0, 0, 0].numpy()
    expected = 6 * ((np.arange(32) + 0.5) / 16 - 1)
    np.testing.assert_allclose(patch, np.broadcast_to(expected, (32, 32)), atol=0.02)


@pytest.mark.filterwarnings("default")
def test_frames_of_kornias_detector_have_the_scale_of_the_blob():
    feature = pytest.importorskip("kornia.feature")
    y, x = np.mgrid[:128, :128]
    # The determinant of the Hessian of a Gaussian blob is largest at its own sigma.
    blob = np.exp(-((x - 64) ** 2 + (y - 60) ** 2) / (2 * 6.0**2))
    pixels = torch.from_numpy(blob)[None, None].float()
    with torch.inference_mode():
        lafs, responses = feature.ScaleSpaceDetector(
            1, resp_module=feature.BlobHessian(), mr_size=6.0
        )(pixels)
    frames = caloric.Frames.from_laf(lafs.numpy(), responses[0].numpy())
    np.testing.assert_allclose(frames.xy, [[64, 60]], atol=1)
    np.testing.assert_allclose(frames.sigma, 6, rtol=0.3)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ["heat", "kornia SIFT"])
def test_patch_descriptors_of_our_frames_match_in_kornia(name):
    feature = pytest.importorskip("kornia.feature")
    first, second, change = views()
    frames = [caloric.detect(image, max_features=500) for image in (first, second)]
    pixels = [torch.from_numpy(image)[None, None].float() / 255 for image in (first, second)]
    module = interop.Descriptor("heat") if name == "heat" else feature.SIFTDescriptor(32)
    describe = feature.LAFDescriptor(module, patch_size=32)

    def count(lafs):
        with torch.inference_mode():
            values = [describe(p, laf)[0] for p, laf in zip(pixels, lafs, strict=True)]
            matches = feature.match_smnn(*values)[1].numpy()
        moved = photographs.apply(change, frames[0].xy[matches[:, 0]])
        return (np.hypot(*(moved - frames[1].xy[matches[:, 1]]).T) < 3).sum()

    sigma = [torch.tensor(f.maps[None]).float() for f in frames]
    scaled = count([feature.scale_laf(laf, 6.0) for laf in sigma])
    assert count([torch.from_numpy(f.to_laf()) for f in frames]) >= 0.9 * scaled > 100
    assert count(sigma) < 0.9 * scaled


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ["heat", "sift"])
def test_patches_of_10_sigma_have_the_descriptors_of_the_pipeline(name):
    feature = pytest.importorskip("kornia.feature")
    image = photograph()
    frames = caloric.detect(image, max_features=100)
    pixels = torch.from_numpy(image)[None, None].float() / 255
    lafs = feature.scale_laf(torch.from_numpy(frames.to_laf()), 10 / 6)
    with torch.inference_mode():
        values = feature.LAFDescriptor(interop.Descriptor(name), patch_size=32)(pixels, lafs)[0]
    expected = caloric.describe(image, frames, name)
    assert np.median((values.numpy() * expected).sum(1)) > 0.95


@pytest.mark.filterwarnings("default")
def test_modules_work_in_kornia():
    feature = pytest.importorskip("kornia.feature")
    image = photograph()
    pixels = torch.from_numpy(image)[None, None].float() / 255
    frames = caloric.detect(image, max_features=60)
    lafs = torch.from_numpy(frames.to_laf())
    ours = feature.LAFDescriptor(interop.Descriptor("heat"), patch_size=32)
    theirs = feature.LAFDescriptor(feature.SIFTDescriptor(32, rootsift=True), patch_size=32)
    assert ours(pixels, lafs).shape == theirs(pixels, lafs).shape == (1, 60, 128)
    patches = feature.extract_patches_from_pyramid(pixels, lafs, PS=32)
    expected = caloric.describe_patches(patches[0, :, 0].numpy(), "heat")
    np.testing.assert_allclose(ours(pixels, lafs)[0].numpy(), expected, atol=1e-4)

    class Detector(torch.nn.Module):
        def forward(self, image, mask=None):
            return lafs, torch.tensor(frames.scores)[None]

    local = feature.LocalFeature(Detector(), ours)
    detected, _, descriptors = local(pixels)
    assert descriptors.shape == (1, 60, 128)
    torch.testing.assert_close(detected, lafs)
