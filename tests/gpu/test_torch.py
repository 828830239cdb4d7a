"""The path of the GPU, on PyTorch's CPU: the same frames and descriptors as without it."""

import itertools
import logging
import os
import subprocess
import sys
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import caloric
import photographs
from caloric import cli
from caloric.alignment import registration, registration_on_device
from caloric.bench.agreement import compared
from caloric.descriptor import density, fields
from caloric.descriptor.recipes import descriptor
from caloric.gpu import batches, caches, devices, extrema, graphs, pipeline, upload
from caloric.gpu import neighbours as gpu_neighbours
from caloric.gpu import scalespace as gpu_scalespace
from caloric.gpu.pyramid import pyramid
from caloric.image import scalespace
from caloric.image.pixels import to_grey
from caloric.interop import torch as interop
from caloric.runtime import native

# "cuda" runs these tests on a GPU.
HERE = os.environ.get("CALORIC_TEST_DEVICE", "torch:cpu")
DEVICE = devices.resolve(HERE)


def photograph(name="astronaut", size=(260, 300)):
    return photographs.grey(name, size)


@pytest.mark.parametrize("size", [(61, 90), (9, 200), (3, 5), (1, 1)])
def test_pyramids_are_those_of_the_cpu(size):
    grey = np.asarray(photograph(size=size), np.float32) / 255
    plan = pyramid(*size)
    rows = gpu_scalespace.build(torch.from_numpy(grey)[None], plan)
    space = scalespace.build(grey)
    assert len(plan.octaves) == len(space.octaves)
    for octave, own in zip(plan.octaves, space.octaves, strict=True):
        found = rows[0, octave.offset :][: octave.count].reshape(own.pixels.shape).numpy()
        np.testing.assert_allclose(found, own.pixels, atol=1e-6)
        assert (octave.step, octave.origin) == (own.step, own.origin)
    ladder = space.ladder()
    assert [o.step for _, o in plan.levels] == [level.step for level in ladder.levels]


@pytest.mark.parametrize("name", ["astronaut", "coffee"])
@pytest.mark.parametrize("options", [{}, {"affine": True}, {"upright": True}])
def test_extract_is_that_of_the_cpu(name, options):
    image = photograph(name)
    here = caloric.extract(image, max_features=400, **options)
    there = caloric.extract(image, max_features=400, device=HERE, **options)
    assert len(there) == pytest.approx(len(here), abs=1)
    assert (here.descriptor, here.recipe) == (there.descriptor, there.recipe)
    for a, b in ((here, there), (there, here)):
        common, cosines = compared(a, b)
        assert common >= 0.99
        assert len(cosines) > 0.98 * len(a)
        if native.core() is not None:  # OpenCV rounds places to 1/32 of a pixel
            assert cosines.min() >= 0.9999
        assert np.mean(cosines >= 0.9999) > 0.99
    assert (np.diff(there.scores) <= 0).all()


def test_all_features_are_those_of_the_cpu():
    image = photograph("camera", (150, 170))
    here, there = caloric.extract(image), caloric.extract(image, device=HERE)
    assert len(here) == pytest.approx(len(there), abs=1)
    assert compared(here, there)[0] >= 0.99


def test_a_mask_types_and_domain_sizes_on_a_device():
    image = photograph("coffee")
    mask = np.zeros(image.shape, bool)
    mask[:, 120:] = True
    options = {"max_features": 150, "mask": mask, "domain_sizes": 4, "dtype": "uint8"}
    here = caloric.extract(image, "sift", **options)
    there = caloric.extract(image, "sift", device=HERE, **options)
    assert there.descriptors.dtype == np.uint8
    assert (there.frames.xy[:, 0] > 119).all()
    assert compared(here, there)[0] >= 0.99
    own = np.array(
        [np.abs(here.descriptors.astype(int) - d).sum(1).min() for d in there.descriptors]
    )
    assert np.mean(own <= 8) > 0.98


def test_images_of_different_sizes_come_back_in_their_order():
    whole = photograph()
    parts = [whole, whole[:120, :200], np.zeros((0, 5), np.uint8), whole, whole[:120, :200]]
    found = caloric.extract(parts, max_features=60, device=HERE)
    assert [f.image_size for f in found] == [(300, 260), (120, 200), (0, 5), (300, 260), (120, 200)]
    assert len(found[2]) == 0
    # On a GPU the last digit depends on the place in the batch.
    np.testing.assert_allclose(found[0].descriptors, found[3].descriptors, atol=1e-6)
    np.testing.assert_allclose(found[1].frames.maps, found[4].frames.maps, rtol=1e-12)
    cpu = caloric.extract(parts, max_features=60)
    assert [f.image_size for f in cpu] == [f.image_size for f in found]
    for a, b in zip(cpu, found, strict=True):
        assert len(a) == len(b)
    masks = [None, np.zeros((120, 200), bool), None, None, None]
    found = caloric.extract(parts, max_features=60, device=HERE, mask=masks)
    assert [len(f) for f in found] == [60, 0, 0, 60, len(found[4])]
    with pytest.raises(caloric.InputError, match="list of 5 masks"):
        caloric.extract(parts, mask=masks[1])


def test_tensors_are_images():
    image = photograph("coffee")
    colour = cv2.cvtColor(image, cv2.COLOR_GRAY2RGB)
    plain = caloric.extract(image, max_features=50)
    grey = torch.from_numpy(image)
    channels = torch.from_numpy(np.moveaxis(colour, 2, 0).copy())
    for tensor in (grey, grey[None], channels, channels.float() / 255):
        for device in ("cpu", HERE):
            found = caloric.extract(tensor, max_features=50, device=device)
            assert compared(plain, found)[0] >= 0.98
    several = caloric.extract(torch.stack([channels, channels]), max_features=50, device=HERE)
    assert len(several) == 2
    with pytest.raises(caloric.InputError, match="tensor"):
        caloric.extract(torch.zeros(2, 30, 30), device=HERE)
    with pytest.raises(caloric.InputError, match="tensor of"):
        caloric.extract(torch.zeros(30, 30, dtype=torch.int64), device=HERE)
    with pytest.raises(caloric.InputError, match="NaN"):
        caloric.extract(torch.full((30, 30), torch.nan), device=HERE)


@pytest.mark.parametrize("name", ["caloric", "heat", "sift", "dsp-inner", "distribution-field"])
def test_describe_is_that_of_the_cpu(name):
    image = photograph()
    frames = caloric.detect(image, max_features=80)
    here = caloric.describe(image, frames, name)
    there = caloric.describe(image, frames, name, device=HERE)
    cosines = (here * there).sum(1) / np.linalg.norm(here, axis=1) / np.linalg.norm(there, axis=1)
    assert cosines.min() >= 0.9999


@pytest.mark.parametrize("options", [{}, {"max_features": 300}, {"upright": True}])
def test_all_directions_are_there(options):
    image = photographs.squares()
    here = caloric.extract(image, **options)
    there = caloric.extract(image, device=HERE, **options)
    assert len(here) == len(there) > 80
    assert compared(here, there)[0] == 1
    if not options:
        _, counts = np.unique(here.frames.xy, axis=0, return_counts=True)
        assert counts.max() > 4


def test_slots_follow_the_image_and_not_what_is_asked_for():
    image = photograph(size=(100, 120))
    many = caloric.extract(image, max_features=10**6, contrast=0.04, device=HERE)
    every = caloric.extract(image, max_features=None, device=HERE)
    assert len(many) == len(every) < 1000


def test_points_at_the_rim_count_as_on_the_cpu():
    """Frames far from 0, of which a point lies 5e-6 pixels within or beyond the last row."""
    rng = np.random.default_rng(0)
    image = rng.random((60, 1500), np.float32)
    offsets = density.in_sigmas(descriptor("caloric").sampling).offsets[1].astype(float)
    offsets = offsets[(offsets > 2) & (offsets < 20)]
    sigma = 1.3
    for side in (5e-6, -5e-6):
        y = 59.5 - sigma * offsets - side
        x = rng.uniform(1000, 1400, len(y))
        maps = np.zeros((len(y), 2, 3))
        maps[:, 0, 0] = maps[:, 1, 1] = sigma
        maps[:, 0, 2], maps[:, 1, 2] = x, y
        frames = caloric.Frames(maps, np.ones(len(maps), np.float32))
        here = caloric.describe(image, frames)
        there = caloric.describe(image, frames, device=HERE)
        assert (here * there).sum(1).min() > (1 - 1e-5 if native.core() is not None else 0.9995)


@pytest.mark.parametrize("options", [{}, {"ratio": None}, {"mutual": False, "ratio": 0.95}])
def test_matches_are_those_of_the_cpu(options):
    a = caloric.extract(photograph(size=(260, 300)), max_features=300)
    b = caloric.extract(np.rot90(photograph(size=(260, 300))).copy(), max_features=250)
    here = caloric.match(a, b, **options)
    there = caloric.match(a, b, device=HERE, **options)
    np.testing.assert_array_equal(here.indices, there.indices)
    np.testing.assert_allclose(here.distances, there.distances, atol=1e-5)
    bare = caloric.match(a.descriptors, b.descriptors, device=HERE, **options)
    same = caloric.match(a.descriptors, b.descriptors, **options)
    np.testing.assert_array_equal(bare.indices, same.indices)


def test_equal_descriptors_match_as_on_the_cpu():
    rng = np.random.default_rng(0)
    few = rng.standard_normal((6, 16)).astype(np.float32)
    a, b = few[[0, 0, 1, 2, 3]], few[[1, 0, 0, 4, 3]]
    for mutual in (True, False):
        here = caloric.match(a, b, ratio=None, mutual=mutual)
        there = caloric.match(a, b, ratio=None, mutual=mutual, device=HERE)
        np.testing.assert_array_equal(here.indices, there.indices)


def test_alignments_are_those_of_the_cpu():
    image = photograph(size=(200, 220))
    template = image[60:130, 40:120]
    here, there = (caloric.align(template, image, device=d) for d in ("cpu", HERE))
    assert there.converged
    np.testing.assert_allclose(here.transform, there.transform, atol=1e-6)
    found = caloric.find_template(image, [photograph("coffee")[:80, :80], template], device=HERE)
    assert found.template == 1
    with pytest.raises(caloric.InputError, match="unknown device"):
        caloric.align(template, image, device="tpu")


@pytest.mark.parametrize("name", sorted(fields.FEATURES))
@pytest.mark.parametrize("inside", [True, False])
def test_registrations_are_those_of_the_cpu(name, inside):
    """Energy, normal equations, agreement and noise at the last sigmas, also beyond the image."""
    feature = fields.feature(name)
    image = photograph(size=(400, 430)).astype(np.float32) / 255
    template = np.ascontiguousarray(image[90:310, 80:330])
    transform = np.array([[1.1, 0.05, 60.0], [-0.05, 1.07, 90.0 if inside else 260.0]])
    here = registration.scene_fine(template, image, feature)
    there = registration_on_device.scene(template, image, feature, DEVICE)
    for sigma, model in itertools.product((1.4, 0.0), ("translation", "similarity", "affine")):
        levels = [scene.level(sigma, model, fine=True) for scene in (here, there)]
        values = [s.evaluate(v, transform) for s, v in zip((here, there), levels, strict=True)]
        a, b = (
            (
                *scene.normal_equations(level, value), value.energy, value.count, level.power,
                scene.cosines(level, value, 12.0), scene.noise(level, value),
            )
            for scene, level, value in zip((here, there), levels, values, strict=True)
        )  # fmt: skip
        for one, other in zip(a, b, strict=True):
            np.testing.assert_allclose(
                one, other, rtol=1e-4, atol=1e-4 * max(np.abs(one).max(), 0.1)
            )
    assert (values[0].count < values[0].weights.size) == (not inside)


def test_large_templates_descend_on_the_device(monkeypatch, caplog):
    image = photograph(size=(480, 512))
    template = image[60:380, 40:400]
    here, there = (caloric.align(template, image, device=d) for d in ("cpu", HERE))
    assert there.converged
    np.testing.assert_allclose(here.transform, there.transform, atol=1e-3)
    np.testing.assert_allclose(here.covariance, there.covariance, rtol=1e-2, atol=1e-9)
    monkeypatch.setattr(torch.nn.functional, "grid_sample", _too_large)
    with caplog.at_level(logging.WARNING):
        again = caloric.align(template, image, device=HERE)
    np.testing.assert_allclose(here.transform, again.transform, atol=1e-6)
    assert "registration of 320 x 360 pixels" in caplog.text


def test_lists_of_pairs_are_matched_as_one_by_one():
    names = (("astronaut", 120), ("coffee", 90), ("camera", 60))
    a, b, c = (
        caloric.extract(photograph(name, (160, 150)), max_features=most) for name, most in names
    )
    none = a[:0]
    pairs = [(a, b), (c, a), (b, b), (none, a), (a, none), (a.descriptors, b.descriptors)]
    for device in ("cpu", HERE):
        together = caloric.match(pairs, ratio=0.95, device=device)
        assert len(together) == len(pairs)
        for pair, matches in zip(pairs, together, strict=True):
            alone = caloric.match(*pair, ratio=0.95)
            np.testing.assert_array_equal(matches.indices, alone.indices)
            np.testing.assert_allclose(matches.distances, alone.distances, atol=1e-5)
    assert caloric.match([], device=HERE) == []
    with pytest.raises(caloric.InputError, match="list of such pairs"):
        caloric.match([a, b, c], device=HERE)
    with pytest.raises(caloric.InputError, match="one pair at a time"):
        caloric.match(pairs, refine=True)
    broken = a.descriptors.copy()
    broken[3, 4] = np.nan
    with pytest.raises(caloric.InputError, match="second set: NaN"):
        caloric.match(a.descriptors, broken, device=HERE)
    with pytest.raises(caloric.InputError, match="dimensions"):
        caloric.match([(a.descriptors, b.descriptors[:, :64])], device=HERE)


def test_groups_of_pairs_are_bounded(monkeypatch):
    monkeypatch.setattr(gpu_neighbours, "_BYTES", 40_000)
    sets = [gpu_neighbours.Set(np.zeros((n, 8), np.float32)) for n in (100, 1000, 10)]
    pairs = [(i, j) for i in range(3) for j in range(3)] * 3
    groups = list(gpu_neighbours._groups(sets, pairs))
    assert [pair for group in groups for pair in group] == pairs
    assert 1 < max(map(len, groups)) < len(pairs)


def test_features_on_a_device_are_the_same_and_match():
    both = [photograph(size=(150, 160)), photograph("coffee", (150, 160))]
    here = caloric.extract(both, max_features=80, device=HERE)
    stay = caloric.extract([*both, np.zeros((0, 5))], max_features=80, device=HERE, on_device=True)
    assert isinstance(stay[0], interop.DeviceFeatures)
    assert [len(s) for s in stay] == [*map(len, here), 0]
    for own, other in zip(here, stay, strict=False):
        copied = other.to_host()
        np.testing.assert_array_equal(own.frames.maps, copied.frames.maps)
        np.testing.assert_allclose(own.descriptors, copied.descriptors, atol=1e-6)
        assert (copied.image_size, copied.recipe) == (own.image_size, own.recipe)
    pairs = [(stay[0], stay[1]), (stay[1], stay[1])]
    for device in ("cpu", HERE):
        for (a, b), matches in zip(
            [(0, 1), (1, 1)], caloric.match(pairs, device=device), strict=True
        ):
            np.testing.assert_array_equal(matches.indices, caloric.match(here[a], here[b]).indices)
    for wrong in ({"device": "cpu"}, {"device": HERE, "views": 2}):
        with pytest.raises(caloric.InputError, match="on_device"):
            caloric.extract(both, on_device=True, **wrong)


def _kinds():
    """The same picture in all the forms that users have it in."""
    colours = cv2.resize(photographs.colour("astronaut"), (97, 81))
    grey = photograph(size=(97, 81))
    half = (grey / 255).astype(np.float16)
    alpha = np.dstack([colours, np.linspace(0, 255, colours[..., 0].size).reshape(grey.shape)])
    frozen = grey.copy()
    frozen.setflags(write=False)
    return {
        "grey": grey, "colours": colours, "one channel": grey[..., None],
        "alpha": alpha.astype(np.uint8), "uint16": grey.astype(np.uint16) * 257,
        "big endian": (grey.astype(np.uint16) * 257).astype(">u2"), "bool": grey > 100,
        "float16": half, "float32": half.astype(np.float32), "float64": colours / 255,
        "Fortran order": np.asfortranarray(colours), "a view": colours[::-1, ::-1],
        "read-only": frozen, "a list": (grey / 255).tolist(),
    }  # fmt: skip


@pytest.mark.parametrize("kind", _kinds())
def test_all_kinds_of_arrays_are_grey_as_on_the_cpu(kind):
    image = _kinds()[kind]
    prepared = upload.prepared(image)
    pixels = upload.on_device(prepared, descriptor("caloric").kernel, DEVICE)
    np.testing.assert_array_equal(pixels.cpu().numpy(), to_grey(image))


@pytest.mark.parametrize(
    ("image", "name", "message"),
    [
        (np.full((40, 40), np.nan, np.float32), "caloric", "NaN"),
        (np.pad(np.full((20, 20), np.inf), 9), "caloric", "NaN or infinite"),
        (np.pad(np.full((20, 20), 200.0), 9), "caloric", r"floats from 0 to 200"),
        (np.pad(np.full((20, 20), 1.5), 9), "distribution-field", r"needs intensities"),
        (np.zeros((40, 40), np.int32), "caloric", "pixels of type int32"),
    ],
)
def test_wrong_pixels_are_the_errors_of_the_cpu(image, name, message):
    good = np.full((*image.shape,), 0.5)
    told = []
    for device in ("cpu", HERE):
        with pytest.raises(caloric.InputError, match=message) as error:
            caloric.extract([good, image], name, device=device)
        told.append(str(error.value))
    assert told[0] == told[1]


# Devices, and what does not fit.


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(monkeypatch):
    image = photograph(size=(40, 40))
    for device in ("cuda", "cuda:1"):
        with pytest.raises(caloric.InputError, match=r"no GPU here.*'auto'"):
            caloric.extract(image, device=device)
    found = caloric.extract(image, device="auto")
    np.testing.assert_array_equal(found.descriptors, caloric.extract(image).descriptors)
    for device in ("gpu", "cuda:x", 3, None):
        with pytest.raises(caloric.InputError, match="unknown device"):
            caloric.extract(image, device=device)
    with pytest.raises(caloric.InputError, match="needs device='cpu'"):
        caloric.extract(image, device=HERE, detector="opencv")


def test_without_pytorch_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(caloric.InputError, match=r"caloric\[torch\]"):
        devices.resolve("cuda")
    assert devices.resolve("cpu") is None


def test_nothing_of_the_cpus_path_imports_pytorch():
    code = (
        "import sys, numpy, caloric\n"
        "image = numpy.random.default_rng(0).random((60, 60))\n"
        "found = caloric.extract([image, image])\n"
        "caloric.match(*found)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_batch_that_does_not_fit_is_halved(monkeypatch, caplog):
    whole, tried = batches.begin, []

    def small(batch, plan, device, stay):
        tried.append(len(batch))
        if len(batch) > 2:
            raise torch.OutOfMemoryError("no room")
        return whole(batch, plan, device, stay)

    monkeypatch.setattr(batches, "begin", small)
    images = [photograph(size=(60, 70))] * 7
    with caplog.at_level(logging.WARNING, "caloric"):
        found = caloric.extract(images, max_features=20, device=HERE)
    assert tried == [7, 3, 1, 2, 4, 2, 2]
    assert "7 images of 60 x 70 do not fit" in caplog.text
    for one in found:  # on a GPU the last digit depends on the size of the batch
        np.testing.assert_allclose(one.descriptors, found[0].descriptors, atol=1e-6)


def _too_large(*arguments, **options):
    raise torch.OutOfMemoryError("full")


def test_description_matching_and_search_that_do_not_fit_are_done_on_the_cpu(monkeypatch, caplog):
    image = photograph(size=(120, 140))
    found = caloric.extract(image, max_features=40)
    expected = caloric.describe(image, found.frames), caloric.match(found, found).indices
    moved = caloric.find_template(image, [image[30:90, 30:90]]).alignment.transform
    monkeypatch.setattr(upload, "upload", _too_large)
    monkeypatch.setattr(gpu_neighbours, "_plain", _too_large)
    monkeypatch.setattr(gpu_neighbours, "_fused", _too_large)
    monkeypatch.setattr(torch.nn.functional, "conv2d", _too_large)
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(
            caloric.describe(image, found.frames, device=HERE), expected[0]
        )
        np.testing.assert_array_equal(caloric.match(found, found, device=HERE).indices, expected[1])
        np.testing.assert_array_equal(
            caloric.find_template(image, [image[30:90, 30:90]], device=HERE).alignment.transform,
            moved,
        )
    told = " ".join(caplog.messages)
    assert all(what in told for what in ("image of 120 x 140", "matching 40 x 40", "a search"))


def test_tables_are_forgotten_together(monkeypatch):
    recorded = caches.kept({"a": 1})
    monkeypatch.setattr(caches, "_MOST", 3)
    asked = []

    @caches.once
    def table(size):
        asked.append(size)
        return size

    for size in (1, 1, 2, 3, 4, 5):
        table(size)
    assert asked == [1, 2, 3, 4, 5]
    assert recorded == {}
    table(1)
    assert asked[-1] == 1


def test_an_image_that_does_not_fit_is_done_on_the_cpu(monkeypatch, caplog):
    monkeypatch.setattr(upload, "upload", _too_large)
    image = photograph(size=(60, 70))
    expected = caloric.extract(image, max_features=20).descriptors
    for same in (image, torch.from_numpy(image)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "caloric"):
            found = caloric.extract(same, max_features=20, device=HERE)
        assert "on the CPU" in caplog.text
        np.testing.assert_array_equal(found.descriptors, expected)
    (stays,) = caloric.extract([image], max_features=20, device=HERE, on_device=True)
    np.testing.assert_array_equal(stays.to_host().descriptors, expected)


def test_more_candidates_than_there_is_room_for_are_looked_for_again(monkeypatch):
    whole, tried = pipeline.extract, []

    def crowded(images, plan, masks=None, capacity=0):
        tried.append(capacity)
        batch = whole(images, plan, masks, capacity)
        full = torch.ones(len(images), dtype=torch.bool)
        return replace(batch, crowded=full) if len(tried) < 3 else batch

    monkeypatch.setattr(pipeline, "extract", crowded)
    # Without a limit, so that nothing is recorded, which takes another extraction.
    caloric.extract(photograph(size=(60, 70)), max_features=None, device=HERE)
    room = pipeline.room((60, 70))
    assert tried == [room, 4 * room, 16 * room]
    # Images of this kind begin there from now on.
    caloric.extract(photograph(size=(60, 70)), max_features=None, device=HERE)
    assert tried[3:] == [16 * room]
    graphs.forget()


def test_batches_of_many_sizes_do_not_wait_without_end(monkeypatch):
    monkeypatch.setattr(batches, "_WAITING", 1000)
    items = [(i, (np.zeros((10, 10 + i), np.float32), None)) for i in range(30)]
    parts = list(batches._by_kind(iter(items)))
    assert sorted(index for part in parts for index, _ in part) == list(range(30))
    assert len(parts) == 30


def test_strongest_has_no_extremum_twice():
    keys = torch.tensor([[5 << 32 | 7, 9 << 32 | 1, 5 << 32 | 7, 0]])
    places = torch.arange(12.0).view(1, 4, 3)
    found = extrema.Peaks(keys, places, torch.tensor([3]))
    kept, strengths = extrema.strongest(found, 3)
    assert (strengths[0, :2] > 0).all()
    assert strengths[0, 2] == 0
    assert kept[0, 0].tolist() == [3.0, 4.0, 5.0]


# Modules.


@pytest.mark.parametrize("name", caloric.descriptors()[1:])
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
    some = torch.rand(2, 1, 8, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(small, (some,), eps=1e-6, atol=1e-5)


@pytest.mark.parametrize("name", caloric.descriptors())
def test_modules_have_gradients_to_frames_and_pixels(name):
    torch.manual_seed(0)
    image = torch.nn.functional.avg_pool2d(torch.rand(1, 1, 34, 34, dtype=torch.float64), 3, 1)
    laf = torch.tensor([[[[1.3, 0.2, 15.3], [-0.3, 1.1, 16.1]]]], dtype=torch.float64)
    laf.requires_grad_()
    module = interop.Descriptor(name).double()
    assert torch.autograd.gradcheck(lambda f: module(image, f), (laf,), eps=1e-7, atol=1e-4)
    pixels = image.clone().requires_grad_()
    weights = torch.rand(module.dimension, dtype=torch.float64)
    (slopes,) = torch.autograd.grad((module(pixels, laf) @ weights).sum(), pixels)
    way = torch.rand_like(pixels)
    with torch.no_grad():
        step = 1e-6
        ahead, behind = (module(image + s * step * way, laf) @ weights for s in (1, -1))
    assert (slopes * way).sum().item() == pytest.approx(
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
    found = interop.Descriptor(name)(pixels, torch.from_numpy(frames.to_laf()))
    expected = caloric.describe(image, frames, name)
    assert found.shape == (1, 40, expected.shape[1])
    assert ((found[0].numpy() * expected).sum(1) >= 0.9999).all()


def test_modules_own_their_tables():
    module = interop.Descriptor("sift")
    module.load_state_dict({k: 0 * v for k, v in module.state_dict().items()})
    assert interop.Descriptor("sift").table.abs().max() > 0


def test_modules_take_nothing_half_precision_and_lost_frames():
    module = interop.Descriptor("sift")
    image = torch.rand(1, 1, 40, 40, generator=torch.Generator().manual_seed(0))
    assert module(image[:0, :, :32, :32]).shape == (0, 128)
    assert module(image, torch.zeros(1, 0, 2, 3)).shape == (1, 0, 128)
    lafs = torch.tensor([[[[3.0, 0, 20], [0, 3, 20]], [[torch.nan, 0, 20], [0, 3, 20]]]])
    found = module(image, lafs)[0]
    assert (found[1] == 0).all()
    half = module.half()(image.half(), lafs.half())[0]
    assert half.dtype == torch.float16
    np.testing.assert_allclose(half[0].float(), found[0], atol=2e-3)
    wide = interop.Descriptor("sift")(image.double(), lafs.double())[0]
    np.testing.assert_allclose(wide[0], found[0], atol=1e-5)


def test_modules_say_what_is_wrong():
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


def test_features_stay_tensors():
    image = photograph()
    images = torch.from_numpy(np.stack([image, image[::-1].copy()]))[:, None].to(DEVICE)
    lafs, scores, values = interop.extract(images, max_features=120)
    assert lafs.shape == (2, 120, 2, 3)
    assert values.shape == (2, 120, 128)
    own = caloric.extract(image, max_features=120, device=HERE)
    # How many go at once decides on the last bits of a product, of half precision on a GPU.
    close = 1e-5 if HERE == "torch:cpu" else 1e-3
    np.testing.assert_allclose(own.descriptors, values[0, : len(own)].cpu().numpy(), atol=close)
    np.testing.assert_array_equal(own.scores, scores[0, : len(own)].cpu().numpy())


@pytest.mark.filterwarnings("default")
def test_inside_kornia():
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
    found, _, described = local(pixels)
    assert described.shape == (1, 60, 128)
    torch.testing.assert_close(found, lafs)


# The command line.


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def test_commands_on_a_device(tmp_path):
    for name, size in (("astronaut", (150, 180)), ("coffee", (150, 180)), ("camera", (90, 120))):
        cv2.imwrite(str(tmp_path / f"{name}.png"), photograph(name, size))
    (tmp_path / "bad.jpg").write_bytes(b"not a picture")
    files = sorted(tmp_path.glob("*.*"))
    result = run("extract", *files, "-o", tmp_path / "out", "--device", HERE, "--max-features", 50)
    assert result.exit_code == 1
    assert "3 of 4 images" in result.output
    assert "bad.jpg" in result.output
    own = caloric.Features.load(tmp_path / "out" / "camera.png.npz")
    expected = caloric.extract(caloric.read_image(tmp_path / "camera.png"), max_features=50)
    assert compared(expected, own)[0] >= 0.98
    result = run("match", files[0], files[0], "--device", HERE)
    assert result.exit_code == 0
    assert run("match", files[0], files[0], "--device", "gpu").exit_code != 0
