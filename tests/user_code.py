"""Code of a user with type annotations: mypy checks it in strict mode, nothing runs it."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

import caloric
from caloric import viz

image = np.zeros((40, 50), np.uint8)
a: caloric.Features = caloric.extract(image, max_features=10)
both: list[caloric.Features] = caloric.extract([image, image])
matches: caloric.Matches = caloric.match(a, a, ratio=0.8)
geometry: caloric.Geometry = caloric.verify(a, a, matches, model="affine")
pair: caloric.ImageMatch = caloric.match_images(image, "b.jpg")
alignment: caloric.Alignment = caloric.align(image, image)
text: str = caloric.cite("heat")
pillow = Image.open("a.png")
images: list[caloric.ImageLike] = [
    image, pillow, "a.png", Path("a.png"), b"", io.BytesIO(), open("a.png", "rb"),  # noqa: SIM115
    caloric.open_image("a.tif"), image.tolist(),
]  # fmt: skip
one: caloric.Features = caloric.extract(pillow, mask=pillow)
two: caloric.Features = caloric.extract("a.png")
many: list[caloric.Features] = caloric.extract(["a.png", "b.png"])
more: list[caloric.Features] = caloric.extract_many([pillow, pillow])
caloric.match_images(pillow, io.BytesIO(), white_level=4095, masks=(pillow, None))
caloric.align(pillow, Path("a.png"))
caloric.find_template(pillow, ["a.png", pillow])
caloric.refine(pillow, "b.png", [[1.0, 2.0]], [[1.0, 2.0]])
caloric.describe(caloric.read_image(pillow), caloric.detect(b""))
viz.draw_features(pillow, one)


def pixels(image: caloric.ImageLike) -> int:
    return len(caloric.read_image(image, white_level=4095))


# Errors that mypy must report; an unused comment is an error, too.
caloric.cite(3)  # type: ignore[arg-type]
caloric.extract(None)  # type: ignore[call-overload]
