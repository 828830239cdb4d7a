"""caloric info."""

import caloric


def test_info_lists_versions_devices_and_descriptors(command):
    code, out, _ = command("info")
    assert code == 0
    assert f"caloric {caloric.__version__}" in out
    assert all(name in out for name in caloric.descriptors())
