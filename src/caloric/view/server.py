"""The local web server of the page; it writes nothing to disk."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from itertools import accumulate
from threading import Event
from typing import Any

from caloric.errors import InputError
from caloric.runtime import progress
from caloric.view import details, images, standalone
from caloric.view.images import LoadedImage
from caloric.view.result import Settings, choices, number
from caloric.view.session import Session, checked_side
from caloric.view.standalone import STATIC

MAX_UPLOAD = 64_000_000  # bytes per file
_POLL = 0.1  # seconds between tests whether the client has disconnected
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; "
    "style-src 'self'; script-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def _number(request: Any, name: str) -> float:
    return number(name, request.query_params.get(name, ""))


async def _uploaded(request: Any) -> list[tuple[str, str, bytes]]:
    """Return side, name and content of each uploaded file.

    The query has, for each file, its side, name and size in bytes; the body is their contents, one
    after the other. Names are only displayed, never used as paths.
    """
    values = [request.query_params.getlist(key) for key in ("side", "name", "size")]
    if not 1 <= len(values[0]) <= 2 or len({len(v) for v in values}) != 1:
        raise InputError("expected the side, name and size of one or two files")
    files = [
        (checked_side(side), name[:200], round(number("size", size)))
        for side, name, size in zip(*values, strict=True)
    ]
    for _, name, size in files:
        if not 0 <= size <= MAX_UPLOAD:
            raise InputError(f"{name}: the file is larger than {MAX_UPLOAD // 10**6} MB")
    total = sum(size for *_, size in files)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > total:
            break
    if len(body) != total:
        raise InputError(f"the upload must have {total} bytes")
    ends = list(accumulate(size for *_, size in files))
    return [
        (side, name, bytes(body[end - size : end]))
        for (side, name, size), end in zip(files, ends, strict=True)
    ]


Handler = Callable[[Any], Awaitable[Any]]


def check_installed() -> None:
    """Raise InputError if Starlette is not installed."""
    try:
        import starlette  # noqa: F401
    except ImportError:
        raise InputError("the page needs Starlette: pip install 'caloric[view]'") from None


def _handled(handler: Handler) -> Handler:
    """Wrap a handler: add the headers, and report errors as JSON."""
    from starlette.requests import ClientDisconnect
    from starlette.responses import JSONResponse

    async def respond(request: Any) -> Any:
        try:
            response = await handler(request)
        except InputError as error:
            response = JSONResponse({"error": str(error)}, 400)
        except MemoryError:
            response = JSONResponse({"error": "out of memory"}, 400)
        except (progress.CancellationError, ClientDisconnect):  # nobody receives this
            response = JSONResponse({"error": "request cancelled"}, 400)
        response.headers.update(HEADERS)
        return response

    return respond


def assembled(
    get: dict[str, Handler], hosts: list[str], put: dict[str, Handler] | None = None
) -> Any:
    """Return the Starlette application of handlers by path, for the given host names."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles

    routes: list[Any] = [
        *(Route(path, _handled(handler)) for path, handler in get.items()),
        *(Route(path, _handled(handler), methods=["PUT"]) for path, handler in (put or {}).items()),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=hosts)
    return Starlette(routes=routes, middleware=[trusted])


def application(session: Session, hosts: list[str]) -> Any:
    """Return the Starlette application, which accepts requests for the given host names."""
    check_installed()
    from starlette.responses import FileResponse, JSONResponse, Response

    workers = asyncio.Semaphore(2)
    matching = asyncio.Semaphore(1)  # one result at a time; images do not wait for it
    steps: dict[str, str] = {}  # the current step of running requests, by their names

    async def compute(
        request: Any,
        work: Callable[..., Any],
        *arguments: Any,
        limit: asyncio.Semaphore = workers,
    ) -> Any:
        """Run a function on a thread; cancel it if the client disconnects."""
        cancelled, task = Event(), request.headers.get("x-task", "")

        def observer(step: str) -> None:
            if cancelled.is_set():
                raise progress.CancellationError
            if step and task:
                steps[task] = step

        def observed() -> Any:
            with progress.observed(observer):
                progress.check()
                return work(*arguments)

        async with limit:
            if await request.is_disconnected():
                raise progress.CancellationError
            running = asyncio.ensure_future(asyncio.to_thread(observed))
            try:
                while not (await asyncio.wait({running}, timeout=_POLL))[0]:
                    if await request.is_disconnected():
                        cancelled.set()
                return running.result()
            finally:
                cancelled.set()
                steps.pop(task, None)

    async def page(request: Any) -> Any:
        return FileResponse(STATIC / "index.html")

    async def state(request: Any) -> Any:
        sides = {side: standalone.describe(image) for side, image in sorted(session.images.items())}
        settings = {**asdict(Settings()), **session.initial_settings}
        return JSONResponse({"images": sides, "settings": settings, **choices()})

    async def upload(request: Any) -> Any:
        """Replace one or both images, or neither if a file is not an image."""
        files = await _uploaded(request)
        loaded = [
            (side, await compute(request, LoadedImage.of, name, data)) for side, name, data in files
        ]
        if await request.is_disconnected():
            raise progress.CancellationError
        for side, image in loaded:
            session.set_image(side, image)
        return await state(request)

    async def restore(request: Any) -> Any:
        session.restore_images()
        return await state(request)

    async def current_step(request: Any) -> Any:
        return JSONResponse({"step": steps.get(request.path_params["task"], "")})

    async def preview(request: Any) -> Any:
        image = session.image(request.path_params["side"])
        return Response(await compute(request, images.preview, image), media_type="image/jpeg")

    async def crop(request: Any) -> Any:
        image = session.image(request.path_params["side"])
        left, top, width, height = (round(_number(request, k)) for k in ("x", "y", "w", "h"))
        data = await compute(request, images.crop, image, (left, top, width, height), 1600)
        return Response(data, media_type="image/jpeg")

    async def match(request: Any) -> Settings:
        """Return the settings of a request after computing and caching their result."""
        settings = Settings.of(request.query_params)
        if session.has_result(settings):  # need not wait for another result
            return settings
        await compute(request, session.matched, settings, limit=matching)
        return settings

    async def matches(request: Any) -> Any:
        return JSONResponse(await compute(request, session.summary, await match(request)))

    async def detail(request: Any) -> Any:
        index = round(_number(request, "match"))
        return JSONResponse(await compute(request, session.detail, await match(request), index))

    async def responses(request: Any) -> Any:
        image = session.image(request.path_params["side"])
        point = (_number(request, k) for k in ("x", "y", "s"))
        return JSONResponse(await compute(request, details.responses, image, *point))

    async def align(request: Any) -> Any:
        x, y, size = (_number(request, k) for k in ("x", "y", "size"))
        return JSONResponse(await compute(request, session.aligned, x, y, round(size)))

    async def saved(request: Any) -> Any:
        settings = await match(request)
        text = await compute(request, session.page, settings, request.query_params.get("compare"))
        name = {"Content-Disposition": 'attachment; filename="matches.html"'}
        return Response(text, media_type="text/html", headers=name)

    get: dict[str, Handler] = {
        "/": page,
        "/api/state": state,
        "/api/progress/{task}": current_step,
        "/api/image/{side}": preview,
        "/api/crop/{side}": crop,
        "/api/matches": matches,
        "/api/detail": detail,
        "/api/responses/{side}": responses,
        "/api/align": align,
        "/api/page": saved,
    }
    return assembled(get, hosts, {"/api/images": upload, "/api/restore": restore})


def serve(session: Session, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve the page until interrupted; call ``ready`` with its URL first."""
    serve_application(lambda hosts: application(session, hosts), host, port, ready)


def serve_application(
    build: Callable[[list[str]], Any], host: str, port: int, ready: Callable[[str], None]
) -> None:
    """Serve an application until interrupted; call ``ready`` with its URL first.

    ``build`` returns the application that accepts requests for the given host names.
    """
    try:
        import uvicorn
    except ImportError:
        raise InputError("the page needs uvicorn: pip install 'caloric[view]'") from None
    # Reject requests for other host names, against DNS rebinding.
    hosts = ["*"] if host not in ("127.0.0.1", "localhost") else ["127.0.0.1", "localhost"]
    app = build(hosts)
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
