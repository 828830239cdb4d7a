"""Responses of the server, without a browser."""

import json

import pytest

import caloric
from caloric.view import server
from pair_of_pictures import ask


def test_the_server_responds_and_reports_errors(served, showing, monkeypatch):
    address = served(showing)
    status, page, headers = ask(address + "/")
    assert status == 200
    assert b"<canvas" in page
    assert "default-src 'self'" in headers["content-security-policy"]
    state = json.loads(ask(address + "/api/state")[1])
    assert state["pictures"]["a"] == {"name": "a.png", "width": 400, "height": 300}
    assert "heat" in state["descriptors"]
    for wrong, part in (
        ("/api/detail?match=99999", "matches"), ("/api/detail?match=x", "number"),
        ("/api/matches?descriptor=magic", "magic"), ("/api/matches?model=magic", "unknown model"),
        ("/api/page?beside=magic", "magic"), ("/api/matches?views=3", "views"),
        ("/api/picture/c", "a or b"), ("/api/responses/a?x=-5&y=0&s=3", "outside"),
        ("/api/crop/a?x=9999&y=0&w=5&h=5", "outside"), ("/api/align?x=nan&y=1&size=64", "number"),
    ):  # fmt: skip
        status, text, _ = ask(address + wrong)
        assert status == 400, wrong
        assert part in json.loads(text)["error"], wrong
    assert ask(address + "/static/../session.py")[0] == 404
    assert ask(address + "/static/%2e%2e/session.py")[0] == 404
    assert ask(address + "/", Host="evil.example")[0] == 400
    status, text, _ = ask(
        address + "/api/picture/a", "PUT", b"no picture", **{"x-name": "b%C3%A9.jpg"}
    )
    assert (status, json.loads(text)["error"].split(":")[0]) == (400, "bé.jpg")
    monkeypatch.setattr(server, "UPLOAD", 1000)
    status, text, _ = ask(address + "/api/picture/a", "PUT", b"x" * 2000)
    assert "larger" in json.loads(text)["error"]
    assert showing.picture("a").name == "a.png"


@pytest.mark.parametrize(("host", "port"), [("::1", 0), ("127.0.0.1", 99999), ("10.99.99.99", 0)])
def test_an_unusable_address_is_reported(host, port, showing):
    with pytest.raises(caloric.InputError, match="port"):
        server.serve(showing, host, port, print)
