"""The EXIF data of a store."""

from caloric.collection import metadata
from caloric.collection.sources import ImageFile
from caloric.image.exif import Exif


def test_exif_data_are_stored_and_replaced(tmp_path):
    phone = Exif("A", "B", 4.3, 28.0, (50.0, 8.0, 100.0))
    metadata.write(tmp_path, [ImageFile("b", "1", Exif()), ImageFile("a", "2", phone)])
    assert metadata.read(tmp_path) == {"a": phone, "b": Exif()}
    (path,) = metadata.shards(tmp_path).all()
    before = path.stat().st_mtime_ns
    metadata.write(tmp_path, [ImageFile("a", "2", phone), ImageFile("b", "1", Exif())])
    assert path.stat().st_mtime_ns == before
    metadata.write(tmp_path, [ImageFile("c", "3", phone)])
    assert metadata.read(tmp_path) == {"c": phone}
    assert metadata.read(tmp_path / "empty") == {}
