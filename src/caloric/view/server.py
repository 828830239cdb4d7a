"""The local web server of the page; it writes nothing to disk."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any
from urllib.parse import unquote

from caloric.errors import InputError
from caloric.view import details, images, standalone
from caloric.view.images import LoadedImage
from caloric.view.result import Settings, choices, number
from caloric.view.session import Session
from caloric.view.standalone import STATIC

MAX_UPLOAD = 64_000_000  # bytes
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; "
    "style-src 'self'; script-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def _number(request: Any, name: str) -> float:
    return number(name, request.query_params.get(name, ""))


async def _body(request: Any) -> bytes:
    """Return the body of an upload; raise an error if it exceeds the size limit."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_UPLOAD:
            raise InputError(f"the file is larger than {MAX_UPLOAD // 10**6} MB")
        parts.append(part)
    return b"".join(parts)


def application(session: Session, hosts: list[str]) -> Any:
    """Return the Starlette application, which accepts requests for the given host names."""
    try:
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.middleware.trustedhost import TrustedHostMiddleware
        from starlette.responses import FileResponse, JSONResponse, Response
        from starlette.routing import Mount, Route
        from starlette.staticfiles import StaticFiles
    except ImportError:
        raise InputError("the page needs Starlette: pip install 'caloric[view]'") from None
    workers = asyncio.Semaphore(2)
    matching = asyncio.Semaphore(1)  # one result at a time; images do not wait for it

    def handled(handler: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        """Wrap a handler: add the headers, and report errors as JSON."""

        async def respond(request: Any) -> Any:
            try:
                response = await handler(request)
            except InputError as error:
                response = JSONResponse({"error": str(error)}, 400)
            except MemoryError:
                response = JSONResponse({"error": "out of memory"}, 400)
            response.headers.update(_HEADERS)
            return response

        return respond

    async def compute(work: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function on a thread, at most two at a time."""
        async with workers:
            return await asyncio.to_thread(work, *arguments)

    async def page(request: Any) -> Any:
        return FileResponse(STATIC / "index.html")

    async def state(request: Any) -> Any:
        sides = {side: standalone.describe(image) for side, image in sorted(session.images.items())}
        settings = {**asdict(Settings()), **session.initial_settings}
        return JSONResponse({"images": sides, "settings": settings, **choices()})

    async def upload(request: Any) -> Any:
        side = request.path_params["side"]
        # The name is only displayed, never used as a path.
        name = unquote(request.headers.get("x-name", "image"))[:200]
        data = await _body(request)
        session.set_image(side, await compute(LoadedImage.of, name, data))
        return await state(request)

    async def preview(request: Any) -> Any:
        image = session.image(request.path_params["side"])
        return Response(await compute(images.preview, image), media_type="image/jpeg")

    async def crop(request: Any) -> Any:
        image = session.image(request.path_params["side"])
        left, top, width, height = (round(_number(request, k)) for k in ("x", "y", "w", "h"))
        data = await compute(images.crop, image, (left, top, width, height), 1600)
        return Response(data, media_type="image/jpeg")

    async def match(request: Any) -> Settings:
        """Return the settings of a request after computing and caching their result."""
        settings = Settings.of(request.query_params)
        if session.has_result(settings):  # need not wait for another result
            return settings
        async with matching:
            if await request.is_disconnected():  # the user has changed the settings since
                raise InputError("request cancelled")
            await asyncio.to_thread(session.matched, settings)
        return settings

    async def matches(request: Any) -> Any:
        return JSONResponse(await compute(session.summary, await match(request)))

    async def detail(request: Any) -> Any:
        index = round(_number(request, "match"))
        return JSONResponse(await compute(session.detail, await match(request), index))

    async def responses(request: Any) -> Any:
        image = session.image(request.path_params["side"])
        point = (_number(request, k) for k in ("x", "y", "s"))
        return JSONResponse(await compute(details.responses, image, *point))

    async def align(request: Any) -> Any:
        x, y, size = (_number(request, k) for k in ("x", "y", "size"))
        return JSONResponse(await compute(session.aligned, x, y, round(size)))

    async def saved(request: Any) -> Any:
        settings = await match(request)
        text = await compute(session.page, settings, request.query_params.get("compare"))
        name = {"Content-Disposition": 'attachment; filename="matches.html"'}
        return Response(text, media_type="text/html", headers=name)

    routes: list[Any] = [
        Route("/", handled(page)),
        Route("/api/state", handled(state)),
        Route("/api/image/{side}", handled(upload), methods=["PUT"]),
        Route("/api/image/{side}", handled(preview)),
        Route("/api/crop/{side}", handled(crop)),
        Route("/api/matches", handled(matches)),
        Route("/api/detail", handled(detail)),
        Route("/api/responses/{side}", handled(responses)),
        Route("/api/align", handled(align)),
        Route("/api/page", handled(saved)),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=hosts)
    return Starlette(routes=routes, middleware=[trusted])


def serve(session: Session, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve the page until interrupted; call ``ready`` with its URL first."""
    try:
        import uvicorn
    except ImportError:
        raise InputError("the page needs uvicorn: pip install 'caloric[view]'") from None
    # Reject requests for other host names, against DNS rebinding.
    hosts = ["*"] if host not in ("127.0.0.1", "localhost") else ["127.0.0.1", "localhost"]
    app = application(session, hosts)
    config = uvicorn.Config(app, host=host, port=port, log_level="error")
    server = uvicorn.Server(config)
    if ":" in host or not 0 <= port < 65536:
        raise InputError(
            f"{host}, {port}: expected an address such as 127.0.0.1 and a port up to 65535"
        )
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InputError(f"{host}:{port}: {error.strerror}; choose another --port") from None
    ready(f"http://{host}:{listener.getsockname()[1]}/")
    with listener:
        asyncio.run(server.serve(sockets=[listener]))
