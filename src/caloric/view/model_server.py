"""The local web server of the page that shows a model; it writes nothing to disk."""

import asyncio
from typing import Any

from caloric.view import server
from caloric.view.model import ShownModel
from caloric.view.standalone import STATIC

_THUMBNAIL, _PREVIEW = 256, 1600  # pixels per side


def application(model: ShownModel, hosts: list[str]) -> Any:
    """Return the Starlette application, which accepts requests for the given host names."""
    server.check_installed()
    from starlette import responses

    def number(request: Any, name: str) -> int:
        return int(request.path_params[name])

    async def page(request: Any) -> Any:
        return responses.FileResponse(STATIC / "model.html")

    async def description(request: Any) -> Any:
        return responses.JSONResponse(await asyncio.to_thread(model.description))

    async def points(request: Any) -> Any:
        data = await asyncio.to_thread(model.points)
        return responses.Response(data, media_type="application/octet-stream")

    async def track(request: Any) -> Any:
        return responses.JSONResponse(await asyncio.to_thread(model.track, number(request, "i")))

    async def neighbors(request: Any) -> Any:
        result = await asyncio.to_thread(model.neighbors, number(request, "i"))
        return responses.JSONResponse(result)

    async def matches(request: Any) -> Any:
        i, j = number(request, "i"), number(request, "j")
        return responses.JSONResponse(await asyncio.to_thread(model.matches, i, j))

    def photograph(side: int) -> server.Handler:
        async def respond(request: Any) -> Any:
            data = await asyncio.to_thread(model.photograph, number(request, "i"), side)
            return responses.Response(data, media_type="image/jpeg")

        return respond

    get: dict[str, server.Handler] = {
        "/": page,
        "/api/model": description,
        "/api/points": points,
        "/api/track/{i:int}": track,
        "/api/neighbors/{i:int}": neighbors,
        "/api/matches/{i:int}/{j:int}": matches,
        "/api/thumbnail/{i:int}": photograph(_THUMBNAIL),
        "/api/preview/{i:int}": photograph(_PREVIEW),
    }
    return server.assembled(get, hosts)
