"""Broken image files of several kinds, with the expected messages."""

import io
import zlib

from PIL import Image

import photographs


def saved(image, **options):
    buffer = io.BytesIO()
    image.save(buffer, **options)
    return buffer.getvalue()


def huge_png():
    """A valid header that declares 100,000 x 100,000 pixels."""

    def chunk(kind, content):
        body = kind + content
        return len(content).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    size = (100_000).to_bytes(4, "big")
    header = chunk(b"IHDR", size + size + bytes([8, 2, 0, 0, 0]))
    data = chunk(b"IDAT", zlib.compress(b"\0" * 100))
    return b"\x89PNG\r\n\x1a\n" + header + data + chunk(b"IEND", b"")


def broken_files(directory):
    jpeg = saved(Image.fromarray(photographs.gray("camera")), format="JPEG")
    (directory / "empty.jpg").write_bytes(b"")
    (directory / "truncated.jpg").write_bytes(jpeg[: len(jpeg) // 2])
    (directory / "text.png").write_text("this is not an image")
    (directory / "huge.png").write_bytes(huge_png())
    (directory / "directory.png").mkdir()
    return {
        "empty.jpg": "the file is empty",
        "truncated.jpg": "cannot decode the image",
        "text.png": "cannot decode the image",
        "huge.png": "the limit of",
        "directory.png": "a directory, not an image",
        "missing.png": "no such file",
    }
