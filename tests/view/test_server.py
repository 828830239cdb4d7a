"""Responses of the server, without a browser."""

import json

import pytest

import caloric
from caloric.view import server
from encoded_images import request


def test_the_server_responds_and_reports_errors(served, viewer, monkeypatch):
    address = served(viewer)
    status, page, headers = request(address + "/")
    assert status == 200
    assert b"<canvas" in page
    assert "default-src 'self'" in headers["content-security-policy"]
    state = json.loads(request(address + "/api/state")[1])
    assert state["images"]["a"] == {"name": "a.png", "width": 400, "height": 300}
    assert "heat" in state["descriptors"]
    for path, message in (
        ("/api/detail?match=99999", "matches"), ("/api/detail?match=x", "number"),
        ("/api/matches?descriptor=magic", "magic"), ("/api/matches?model=magic", "unknown model"),
        ("/api/page?compare=magic", "magic"), ("/api/matches?views=3", "views"),
        ("/api/image/c", "a or b"), ("/api/responses/a?x=-5&y=0&s=3", "outside"),
        ("/api/crop/a?x=9999&y=0&w=5&h=5", "outside"), ("/api/align?x=nan&y=1&size=64", "number"),
    ):  # fmt: skip
        status, text, _ = request(address + path)
        assert status == 400, path
        assert message in json.loads(text)["error"], path
    assert request(address + "/static/../session.py")[0] == 404
    assert request(address + "/static/%2e%2e/session.py")[0] == 404
    assert request(address + "/", Host="evil.example")[0] == 400
    status, text, _ = request(
        address + "/api/image/a", "PUT", b"not an image", **{"x-name": "b%C3%A9.jpg"}
    )
    assert (status, json.loads(text)["error"].split(":")[0]) == (400, "bé.jpg")
    monkeypatch.setattr(server, "MAX_UPLOAD", 1000)
    status, text, _ = request(address + "/api/image/a", "PUT", b"x" * 2000)
    assert "larger" in json.loads(text)["error"]
    assert viewer.image("a").name == "a.png"


@pytest.mark.parametrize(("host", "port"), [("::1", 0), ("127.0.0.1", 99999), ("10.99.99.99", 0)])
def test_an_unusable_address_is_reported(host, port, viewer):
    with pytest.raises(caloric.InputError, match="port"):
        server.serve(viewer, host, port, print)
