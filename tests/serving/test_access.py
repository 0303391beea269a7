"""Who is answered: keys, hosts, origins, content types, and sizes of bodies."""

import asyncio
import json
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from posttrain.errors import UserError
from posttrain.serving import access
from posttrain.serving.access import OWN_NAMES
from posttrain.serving.server import Service
from tests.engines.scripted import bigrams, serve
from tests.serving.test_server import JSON, ChatPolicy, Client, talking

BODY = {"prompt": "a", "max_tokens": 1}


def ask(headers: dict[str, str], path: str = "/v1/completions", **settings: Any) -> httpx2.Response:
    async def work(client: Client) -> httpx2.Response:
        if path == "/v1/completions":
            return await client.post(path, content=json.dumps(BODY), headers={**JSON, **headers})
        return await client.get(path, headers=headers)

    response: httpx2.Response = talking(work, **settings)
    return response


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/models", "/health"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:8000"}, 200),
        ({"Host": "127.0.0.1"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Host": "LOCALHOST"}, 200),
        ({"Host": "evil.example:8000"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "localhost", "Origin": "http://evil.example"}, 403),
        ({"Host": "localhost", "Origin": "null"}, 403),
        ({"Host": "localhost", "Origin": "http://localhost:3000"}, 403),
        ({"Host": "localhost", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "localhost", "Sec-Fetch-Site": "none"}, 200),
    ],
)
def test_only_programs_that_ask_for_this_server_are_answered(path: str, headers: dict[str, str], status: int) -> None:
    assert ask(headers, path, hosts=OWN_NAMES).status_code == status


def test_a_page_is_refused_also_where_any_name_is_taken() -> None:
    assert ask({"Host": "judge"}).status_code == 200
    assert ask({"Host": "judge", "Origin": "http://judge"}).status_code == 403


@pytest.mark.parametrize("given", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; a=b"])
def test_a_body_must_be_declared_as_json(given: str) -> None:
    response = ask({"Content-Type": given})
    assert response.status_code == 415 and "application/json" in response.json()["error"]["message"]
    assert ask({"Content-Type": "Application/JSON; charset=utf-8"}).status_code == 200


@pytest.mark.parametrize("key", ["secret", "schlüssel", "ключ"])
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_key_of_any_characters_opens_it(key: str, scheme: str) -> None:
    spellings = [f"{scheme} {key}".encode()]
    if key != "ключ":
        spellings.append(f"{scheme} {key}".encode("latin-1"))
    for sent in spellings:
        headers: Any = {b"Authorization": sent}
        assert talking(lambda c, h=headers: c.get("/v1/models", headers=h), api_key=key).status_code == 200, sent
    for wrong in (b"Bearer", b"", key.encode(), b"Basic " + key.encode(), b"Bearer " + key.encode()[:-1], b"\xff\xfe"):
        headers = {b"Authorization": wrong}
        assert talking(lambda c, h=headers: c.get("/v1/models", headers=h), api_key=key).status_code == 401, wrong


def test_a_large_body_is_refused_before_it_is_read() -> None:
    received: list[int] = []

    async def pieces() -> Any:
        for number in range(1000):
            received.append(number)
            yield b" " * 2**20

    response = talking(lambda client: client.post("/v1/completions", content=pieces(), headers=JSON))
    assert response.status_code == 413
    assert len(received) * 2**20 <= access.SMALLEST_LIMIT + 2 * 2**20
    announced = {**JSON, "Content-Length": str(10**30)}
    response = talking(lambda client: client.post("/v1/completions", content=b"{}", headers=announced))
    assert response.status_code == 413


def test_all_bodies_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred clients that have sent nearly all of a large body each, and wait."""
    monkeypatch.setattr(access, "BODIES", 2 * access.SMALLEST_LIMIT)
    service = Service(serve(ChatPolicy(bigrams())), "tester")
    release = asyncio.Event()

    async def pieces() -> Any:
        yield b" " * (access.SMALLEST_LIMIT - 10)
        await release.wait()

    async def run() -> list[int]:
        async with Client(transport=httpx2.ASGITransport(app=service.app()), base_url="http://test") as client:
            asked = [
                asyncio.ensure_future(client.post("/v1/completions", content=pieces(), headers=JSON)) for _ in range(6)
            ]
            for _ in range(100):
                await asyncio.sleep(0)
            assert service._access._held <= 2 * access.SMALLEST_LIMIT
            release.set()
            return sorted([(await response).status_code for response in asked])

    assert asyncio.run(run()) == [400, 400, 429, 429, 429, 429]
    assert service._access._held == 0


def test_errors_hold_no_path_of_this_machine(tmp_path: Path) -> None:
    policy = ChatPolicy(bigrams())

    def refusing(prompt: Any) -> Any:
        raise UserError(f"the chat template of '{tmp_path}' refuses this; see /etc/posttrain/notes.txt or ../a/b")

    policy.tokenizer.encode_prompt = refusing  # type: ignore[method-assign]
    body = {"messages": [{"role": "user", "content": "a"}]}
    response = talking(lambda client: client.post("/v1/chat/completions", json=body), policy, private=[str(tmp_path)])
    message = response.json()["error"]["message"]
    assert response.status_code == 400
    assert "template of 'tester' refuses" in message and "/etc" not in message and str(tmp_path) not in message


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PAGE = """<!doctype html><title>evil</title><script>
const tries = [
  () => fetch(URL + "/v1/models"),
  () => fetch(URL + "/v1/models", {mode: "no-cors"}),
  () => fetch(URL + "/v1/completions", {method: "POST", mode: "no-cors", body: BODY}),
  () => fetch(URL + "/v1/completions", {method: "POST", mode: "no-cors", body: new Blob([BODY], {type: "text/plain"})}),
  () => fetch(URL + "/v1/completions", {method: "POST", headers: {"Content-Type": "application/json"}, body: BODY}),
  () => navigator.sendBeacon(URL + "/v1/completions", BODY),
  () => new Promise(done => { const i = new Image(); i.onerror = i.onload = done; i.src = URL + "/v1/models?image"; }),
];
(async () => {
  for (const one of tries) { try { const got = await one(); await fetch("/seen?" + (got && got.status)); }
                             catch (error) { await fetch("/seen?" + error.name); } }
  await fetch("/done");
})();
</script>"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_a_page_in_a_real_browser_gets_nothing(tmp_path: Path) -> None:
    """A page of another site, and one whose name leads to this machine (rebinding): no request of theirs computes."""
    from tests.serving.browsing import application_in_a_thread, page_in_a_thread

    service = Service(serve(ChatPolicy(bigrams())), "tester", hosts=OWN_NAMES)
    statuses: list[tuple[str, str, int]] = []
    app = service.app()

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        async def noted(message: Any) -> None:
            if message["type"] == "http.response.start":
                host = dict(scope["headers"]).get(b"host", b"").decode()
                statuses.append((scope["method"], host.partition(":")[0], message["status"]))
            await send(message)

        await app(scope, receive, noted)

    with application_in_a_thread(watched) as port:
        for name in ("127.0.0.1", "evil.example"):
            text = PAGE.replace("URL", f'"http://{name}:{port}"').replace("BODY", repr(json.dumps(BODY)))
            done = threading.Event()
            with page_in_a_thread(text, done) as page_port:
                process = subprocess.Popen(
                    [
                        str(CHROMIUM),
                        *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--no-proxy-server"),
                        f"--user-data-dir={tmp_path / name}",
                        "--host-resolver-rules=MAP evil.example 127.0.0.1",
                        f"http://evil.example:{page_port}/",
                    ],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                try:
                    assert done.wait(120), "the browser did not finish"
                finally:
                    process.kill()
                    process.wait()
    assert {host for _, host, _ in statuses} == {"127.0.0.1", "evil.example"}
    assert {method for method, *_ in statuses} >= {"GET", "POST"}
    assert {status for *_, status in statuses} <= {403, 405}, statuses
    assert service.waiting == 0
