"""The report: every section, honest words, hostile text, and what a browser makes of it."""

from __future__ import annotations

import json
import re
import threading
import xml.etree.ElementTree as ElementTree
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from pipelines.base.errors import ToolFailed, UsageError
from pipelines.commands import history as history_command
from pipelines.commands import report as report_command
from pipelines.commands.context import Context
from pipelines.config.pipeline import Regression, Webhook
from pipelines.report import html, junit, markdown, svg, webhook
from pipelines.report.benchmark import model_against_reference
from pipelines.report.history import History
from pipelines.report.night import nights, read
from pipelines.report.reference import reference
from pipelines.report.summary import summarise
from pipelines.report.svg import Series
from tests.report.browser import chromium, measure, picture
from tests.report.nights import BASE, commit, document, keep, synthetic

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = '<script>alert(1)</script> & "quotes" | `ticks` \x1b[31m'


def benchmark_result() -> dict[str, Any]:
    """A benchmark's keys with the time model's own numbers: for the look of the page, not for their values."""
    rows = model_against_reference(reference())["rows"]
    return {
        "task": "benchmark",
        "status": "passed",
        "figures": [
            {"name": "matvec_luts", "figure": {"value": 1500, "unit": "LUT", "evidence": "model"},
             "limit": {"value": 1700, "unit": "LUT", "evidence": "model"}, "reference": None, "how": "yosys"},
            {"name": "matvec.words_per_cycle", "figure": {"value": 0.99, "unit": "words/cycle", "evidence": "rtl"},
             "limit": {"value": 1.0, "unit": "words/cycle", "evidence": "model"},
             "reference": {"value": 1.0, "unit": "words/cycle", "evidence": "reference"}, "how": "counted"},
        ],
        "table": [{**row, "hand_over_reference": 16.1, "total_with_hand_over": row["total"] + 16.1} for row in rows],
        "waterfall": [
            {"name": "weights at the wall", "ms": 73.7, "evidence": "model"},
            {"name": "K and V at the wall", "ms": 18.8, "evidence": "model"},
            {"name": "starts, ends, stalls", "ms": 1.2, "evidence": "rtl"},
            {"name": "CPU", "ms": 26.7, "evidence": "reference"},
            {"name": "hand-over", "ms": 15.6, "evidence": "reference"},
        ],
    }  # fmt: skip


def report_of(folder: Path, **changes: Any) -> dict[str, Any]:
    """The report of a thirty-first night, after thirty with one figure that became worse."""
    kept = folder / "nights"
    synthetic(kept, 30, moved={"tokens_per_s": (28, 0.7)})
    whole = document(30, {**BASE, "tokens_per_s": BASE["tokens_per_s"] * 0.7})
    whole["results"]["benchmark"] = benchmark_result()
    whole["stages"].append({"name": "benchmark", "status": "passed", "cached": False, "reason": "", "elapsed_s": 31.0})
    whole["results"]["release"] = {
        "task": "release", "status": "passed", "release": "e" * 64, "manifest": "nowhere", "signed_by": "me@here",
        "parts": [{"name": "runtime/libtritforge.so", "sha256": "a" * 64, "bytes": 76_360}],
    }  # fmt: skip
    whole.update(changes)
    keep(kept, 30, whole)
    paths = nights(kept)
    with History(folder / "history.sqlite") as history:
        history.take_in(kept)
        return summarise(read(paths[-1]), read(paths[-2]), history, Regression())


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return report_of(tmp_path_factory.mktemp("report"))


def failed_night() -> dict[str, Any]:
    whole = document(30, BASE)
    for stage in whole["stages"]:
        stage["status"] = {"verify": "failed", "deploy": "error", "generate": "skipped"}.get(stage["name"], "passed")
    error = {"class": "MismatchError", "message": HOSTILE, "hint": HOSTILE, "log": "/nowhere/log"}
    whole["results"]["verify"] = {"task": "verify", "status": "failed", "error": error}
    whole["results"]["deploy"] = {"task": "deploy", "status": "error", "error": {**error, "class": "TransferError"}}
    whole["results"]["generate"] = {}
    whole["texts"] = [{"prompt": HOSTILE, "text": HOSTILE}]
    return whole


def test_it_says_what_became_worse_and_where(report: dict[str, Any]) -> None:
    assert report["verdict"] == "passed" and "worse" in report["sentence"]
    worse = [figure for figure in report["changes"]["figures"] if figure["verdict"] == "worse"]
    assert [figure["name"] for figure in worse] == ["generate.tokens_per_s"]
    assert worse[0]["commits"] == f"{commit(27)[:12]}..{commit(28)[:12]}"


def test_an_optional_stage_that_failed_is_told_and_decides_nothing(tmp_path: Path) -> None:
    whole = document(30, BASE, optional=["evaluate"])
    for stage in whole["stages"]:
        stage["status"] = "error" if stage["name"] == "evaluate" else "passed"
    error = {"class": "ToolFailed", "message": "no text", "hint": "", "log": None}
    whole["results"]["evaluate"] = {"task": "evaluate", "status": "error", "error": error}
    found = report_of(tmp_path, **whole)
    assert found["verdict"] == "passed"
    assert found["sentence"] == "Everything that decides passed; optional, and not well: evaluate."
    assert "error, optional" in html.render(found) and "error, optional" in markdown.render(found)
    case = ElementTree.fromstring(junit.render(found)).find(".//testcase[@name='evaluate']/skipped")
    assert case is not None and case.get("message") == "optional, error: no text"


def test_what_the_night_has_nothing_to_say_about_has_no_section(tmp_path: Path) -> None:
    whole = document(0, BASE)
    for name in ("evaluate", "verify", "simulate", "generate"):
        del whole["results"][name]
    whole["texts"] = []
    path = keep(tmp_path / "nights", 0, whole)
    with History(tmp_path / "history.sqlite") as history:
        history.take_in(tmp_path / "nights")
        page = html.render(summarise(read(path), None, history, Regression()))
    for id in ("text", "equality", "perplexity", "gates", "history"):
        assert f'id="{id}"' not in page and f'href="#{id}"' not in page
    assert "Not in this report: " in page and "perplexity (no &#39;evaluate&#39; passed)" in page


def test_every_section_is_there(report: dict[str, Any]) -> None:
    page = html.render(report)
    for id in (
        "changes",
        "stages",
        "text",
        "equality",
        "time",
        "perplexity",
        "gates",
        "history",
        "figures",
        "provenance",
    ):
        assert f'<h2 id="{id}">' in page
    for words in ("119.2", "Largest error", "runtime/libtritforge.so", "a" * 64, "armv7l", "there was a &lt;b&gt;fox"):
        assert words in page, words
    for url in ("http://", "https://", "<script", "@import", "url("):
        assert url not in page


def test_every_figure_has_its_evidence(report: dict[str, Any]) -> None:
    assert {figure["evidence"] for figure in report["figures"]} == {"model", "rtl"}
    page = html.render(report)
    for figure in report["figures"]:
        assert figure["how"]
        assert figure["name"].removeprefix("benchmark.") in page  # those stand in the table of the benchmark


def test_json_is_json(report: dict[str, Any]) -> None:
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_a_night_that_went_wrong_shows_why_and_is_not_led_astray(tmp_path: Path) -> None:
    bad = report_of(tmp_path, **failed_night())
    assert bad["verdict"] == "failed"
    page = html.render(bad)
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    assert "MismatchError" in page and "TransferError" in page and "/nowhere/log" in page
    text = markdown.render(bad)
    assert "❌ failed" in text and "<script>" not in text.replace("\\<script\\>", "")
    root = ElementTree.fromstring(junit.render(bad))
    stages = next(suite for suite in root if suite.get("name") == "stages")
    assert (stages.get("failures"), stages.get("errors"), stages.get("skipped")) == ("1", "1", "1")
    assert stages.get("tests") == str(len(bad["stages"]))


def test_an_offline_board_is_no_failure(tmp_path: Path) -> None:
    whole = document(30, BASE)
    for stage in whole["stages"]:
        if stage["name"] in ("deploy", "generate", "verify"):
            stage["status"] = "offline" if stage["name"] == "deploy" else "skipped"
            whole["results"][stage["name"]] = {}
    found = report_of(tmp_path, **whole)
    assert found["verdict"] == "offline"
    root = ElementTree.fromstring(junit.render(found))
    assert (
        sum(
            int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            for suite in root
            if suite.get("name") == "stages"
        )
        == 0
    )


def test_worse_figures_fail_their_case(report: dict[str, Any]) -> None:
    root = ElementTree.fromstring(junit.render(report))
    failed = [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None]
    assert failed == ["generate.tokens_per_s"]


def test_a_first_night_without_anything_is_drawn_too(tmp_path: Path) -> None:
    path = keep(tmp_path / "nights", 0, {"board": "emu1", "model": "tiny", "stages": [], "texts": [], "results": {}})
    with History(tmp_path / "h.sqlite") as history:
        history.take_in(tmp_path / "nights")
        page = html.render(summarise(read(path), None, history, Regression()))
    assert "This is the first night" in page and "Incomplete" in page


def test_a_plot_s_axis_tells_near_numbers_apart_and_does_not_go_below_what_can_be() -> None:
    near = svg.lines("a", "b", ["1", "2"], [Series("x", [4_680_550.0, 4_681_937.0])], "bytes")
    ticks = re.findall(r'text-anchor="end">([\d.]+M)<', near)
    assert len(ticks) >= 4 and len(set(ticks)) == len(ticks)
    wide = svg.lines("a", "b", ["1", "2"], [Series("x", [62.0, 1063.0])], "s")
    assert '"end">0</text>' in wide and ">-" not in wide


class _Root:
    """A checkout's state elsewhere: what the commands need of a context."""

    def __init__(self, folder: Path) -> None:
        self.state = folder
        self.settings = Context(root=ROOT).settings


def test_the_task_writes_four_files_and_history_reads_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    context: Any = _Root(tmp_path)
    with pytest.raises(UsageError, match="no night"):
        report_command.run(context)
    synthetic(tmp_path / "nights", 8)
    result = report_command.run(context)
    assert result["verdict"] == "passed" and result["unreadable"] == [] and not result["posted"]
    for key in ("html", "junit", "report", "markdown"):
        assert Path(result[key]).stat().st_size > 500
    assert "generate.tokens_per_s" in history_command.run(context)["figures"]
    shown = history_command.run(context, "generate.tokens_per_s", runs=5)
    assert len(shown["points"]) == 5
    history_command.show(shown)
    out = capsys.readouterr().out
    assert out.count("●") == 5 and "tok/s [model]" in out
    with pytest.raises(UsageError, match=r"did you mean 'generate.tokens_per_s'\? there are \d+$"):
        history_command.run(context, "generate.token_per_s")
    history_command.show(history_command.run(context))
    listed = capsys.readouterr().out.splitlines()
    assert listed[-1] == "8 nights"
    assert [line.split() for line in listed if "perplexity" in line][0][-3:] == ["perplexity", "[model]", "steady"]


def test_the_terminal_plot_fits_and_shows_the_extremes() -> None:
    values = [float(i % 7) for i in range(200)]
    drawn = history_command.plot(values, "ms", 60)
    assert max(len(line) for line in drawn.splitlines()) <= 60
    assert history_command.plot([3.0, 3.0], "ms").count("●") == 2


@pytest.fixture
def collector() -> Any:
    taken: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # noqa: N802
            taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(500 if taken[-1]["board"] == "refuse" else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/secret", taken
    server.shutdown()
    server.server_close()


def test_webhook_is_off_unless_its_variable_is_set(
    report: dict[str, Any], collector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, taken = collector
    hook = Webhook(url_env="TRITFORGE_TEST_WEBHOOK", on="always")
    monkeypatch.delenv("TRITFORGE_TEST_WEBHOOK", raising=False)
    assert not webhook.post(None, report, "x") and not webhook.post(hook, report, "x")
    monkeypatch.setenv("TRITFORGE_TEST_WEBHOOK", address)
    assert webhook.post(hook, report, "the text")
    assert taken[0]["text"] == "the text" and taken[0]["verdict"] == "passed"
    assert not webhook.post(Webhook(url_env="TRITFORGE_TEST_WEBHOOK"), report, "x")
    with pytest.raises(ToolFailed) as caught:
        webhook.post(hook, {**report, "board": "refuse"}, "x")
    assert "secret" not in caught.value.message


@pytest.mark.skipif(chromium() is None, reason="chromium is not installed: apt-get install chromium")
@pytest.mark.parametrize("kind", ["passed", "failed"])
@pytest.mark.parametrize("width", [1280, 390])
def test_in_a_browser(tmp_path: Path, report: dict[str, Any], kind: str, width: int) -> None:
    shown = report if kind == "passed" else report_of(tmp_path, **failed_night())
    page = tmp_path / "report.html"
    page.write_text(html.render(shown), encoding="utf-8")
    found = measure(page, width)
    assert found["errors"] == [] and found["outside"] == [] and found["fetched"] == []
    assert found["scrollWidth"] <= width
    assert len(found["plots"]) >= (14 if kind == "passed" else 6)
    for plot in found["plots"]:
        assert plot["shapes"] >= 2 and plot["height"] > 80 and plot["cut"] == 0, plot
        assert plot["font"] >= 10, plot
    assert set(found["links"]) <= set(found["ids"]) and len(set(found["ids"])) == len(found["ids"])
    assert found["unlabelled"] == 0 and found["headings"][0] == 1
    out = ROOT / ".tritforge" / "report" / "pictures"
    out.mkdir(parents=True, exist_ok=True)
    picture(page, width, min(found["height"], 12_000), out / f"{kind}-{width}.png")
    assert (out / f"{kind}-{width}.png").read_bytes().startswith(b"\x89PNG")
