"""Responses of the server, without a browser."""

import json
import socket
from urllib.parse import urlencode

import pytest

import caloric
from caloric.view import server
from encoded_images import encoded_pair, request


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
    monkeypatch.setattr(server, "MAX_UPLOAD", 1000)
    assert upload(address, a=("large.png", b"x" * 2000)) == (
        400, "large.png: the file is larger than 0 MB",
    )  # fmt: skip
    assert viewer.image("a").name == "a.png"


def upload(address, **files):
    """Status and error message of an upload of {side: (name, content)}."""
    rows = [
        (key, value)
        for side, (name, data) in files.items()
        for key, value in (("side", side), ("name", name), ("size", len(data)))
    ]
    body = b"".join(data for _, data in files.values())
    status, text, _ = request(f"{address}/api/images?{urlencode(rows)}", "PUT", body)
    return status, json.loads(text).get("error")


def test_two_images_are_replaced_together_or_not_at_all(served, viewer):
    address = served(viewer)
    first, second = encoded_pair()
    before = viewer.both()
    status, error = upload(address, a=("new.png", second), b=("bé.jpg", b"not an image"))
    assert (status, error.split(":")[0]) == (400, "bé.jpg")
    assert viewer.both() == before
    assert upload(address, b=("first.png", first), a=("second.png", second)) == (200, None)
    assert [image.name for image in viewer.both()] == ["second.png", "first.png"]
    assert upload(address, c=("x.png", first))[0] == 400
    for query in ("", "?side=a&name=x&size=9", "?side=a&name=x&size=-1", "?side=a&name=x"):
        status, text, _ = request(f"{address}/api/images{query}", "PUT", b"five!")
        assert status == 400, query
        assert "error" in json.loads(text)
    assert request(f"{address}/api/restore", "PUT")[0] == 200  # nothing has been matched
    assert viewer.image("a").name == "second.png"


def test_a_client_that_disconnects_cancels_its_request(served, viewer, slow):
    address = served(viewer)
    host, port = address.removeprefix("http://").split(":")
    matched, aligned = slow(viewer, "matched"), slow(viewer, "aligned")
    responses = slow(server.details, "responses")
    for path, work in (
        ("matches", matched), ("align?x=100&y=100&size=64", aligned), ("page", matched),
        ("responses/a?x=9&y=9&s=2", responses),
    ):  # fmt: skip
        work.started.clear()
        work.cancelled.clear()
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(
                f"GET /api/{path} HTTP/1.1\r\nHost: {host}\r\nX-Task: 7\r\n\r\n".encode()
            )
            assert work.started.wait(5), path
            step = json.loads(request(f"{address}/api/progress/7")[1])
            assert step == {"step": "simulated views, tilt 4"}
        assert work.cancelled.wait(1), path
    matched.proceed.set()
    assert request(f"{address}/api/matches?descriptor=sift")[0] == 200  # it is free again
    assert json.loads(request(f"{address}/api/progress/7")[1]) == {"step": ""}


@pytest.mark.parametrize(("host", "port"), [("::1", 0), ("127.0.0.1", 99999), ("10.99.99.99", 0)])
def test_an_unusable_address_is_reported(host, port, viewer):
    with pytest.raises(caloric.InputError, match="port"):
        server.serve(viewer, host, port, print)
