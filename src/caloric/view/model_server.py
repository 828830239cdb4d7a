"""The local web server of the page that shows a model; it writes nothing to disk."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from caloric.errors import InputError
from caloric.view.model import ShownModel
from caloric.view.server import HEADERS
from caloric.view.standalone import STATIC

_THUMBNAIL, _PREVIEW = 256, 1600  # pixels per side


def application(model: ShownModel, hosts: list[str]) -> Any:
    """Return the Starlette application, which accepts requests for the given host names."""
    try:
        from starlette import responses
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.middleware.trustedhost import TrustedHostMiddleware
        from starlette.routing import Mount, Route
        from starlette.staticfiles import StaticFiles
    except ImportError:
        raise InputError("the page needs Starlette: pip install 'caloric[view]'") from None

    def handled(handler: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        async def respond(request: Any) -> Any:
            try:
                response = await handler(request)
            except InputError as error:
                response = responses.JSONResponse({"error": str(error)}, 400)
            response.headers.update(HEADERS)
            return response

        return respond

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

    def photograph(side: int) -> Callable[[Any], Awaitable[Any]]:
        async def respond(request: Any) -> Any:
            data = await asyncio.to_thread(model.photograph, number(request, "i"), side)
            return responses.Response(data, media_type="image/jpeg")

        return respond

    routes: list[Any] = [
        Route("/", handled(page)),
        Route("/api/model", handled(description)),
        Route("/api/points", handled(points)),
        Route("/api/track/{i:int}", handled(track)),
        Route("/api/neighbors/{i:int}", handled(neighbors)),
        Route("/api/matches/{i:int}/{j:int}", handled(matches)),
        Route("/api/thumbnail/{i:int}", handled(photograph(_THUMBNAIL))),
        Route("/api/preview/{i:int}", handled(photograph(_PREVIEW))),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=hosts)
    return Starlette(routes=routes, middleware=[trusted])
