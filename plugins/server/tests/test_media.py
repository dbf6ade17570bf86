"""Images, histograms, texts and files that scripts report through TensorBoard, which may be anything."""

from __future__ import annotations

import os
import random
import re
import struct
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import google_crc32c
import pytest
from det_server import _event_files
from det_server._event_files import Kind, decode_histogram, decode_image, decode_text, index_file, read_content
from det_server.pages import media

from .serving import ServedSite

IMAGE = "/data/trials/1/image"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
HTML = b"<html><script>alert(1)</script>"


def varint(number: int) -> bytes:
    head, rest = number & 0x7F, number >> 7
    return bytes([head | 0x80]) + varint(rest) if rest else bytes([head])


def part(number: int, value: int | bytes) -> bytes:
    """Return a field of a message: a number, or bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def doubles(number: int, *values: float) -> bytes:
    return part(number, struct.pack(f"<{len(values)}d", *values))


def record(step: int, *values: bytes) -> bytes:
    return framed(part(2, step) + part(5, b"".join(part(1, one) for one in values)))


def framed(event: bytes) -> bytes:
    length = struct.pack("<Q", len(event))
    return length + crc(length) + event + crc(event)


def crc(data: bytes) -> bytes:
    value = google_crc32c.value(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def plugin(name: bytes) -> bytes:
    return part(9, part(1, part(1, name)))


def image(tag: bytes, data: bytes) -> bytes:
    return part(1, tag) + part(4, part(1, 8) + part(2, 8) + part(4, data))


def text(tag: bytes, value: bytes) -> bytes:
    return part(1, tag) + part(8, part(1, 7) + part(8, value)) + plugin(b"text")


def histogram(tag: bytes, low: float = -1.0, high: float = 3.0) -> bytes:
    ends = b"".join(
        varint(number << 3 | 1) + struct.pack("<d", value) for number, value in ((1, low), (2, high), (3, 8.0))
    )
    return part(1, tag) + part(5, ends + doubles(6, 0.0, 1.0, 1e308) + doubles(7, 2.0, 4.0, 2.0))


def tensor_histogram(tag: bytes) -> bytes:
    rows = struct.pack("<6d", 0, 1, 5, 1, 2, 7)
    return part(1, tag) + part(8, part(1, 2) + part(4, rows)) + plugin(b"histograms")


@pytest.fixture
def report(local: ServedSite, tmp_path: Path) -> Callable[..., str]:
    """Return a function that writes an event file, and returns the path of the page of its trial."""
    block = {"type": "shared_fs", "host_path": str(tmp_path)}
    experiment = local.store.create_experiment(config={"name": "x", "checkpoint_storage": block}).id
    trial = local.store.create_trial(experiment, hparams={}, seed=1).id

    def write(*contents: bytes, name: str = "events.out.tfevents.1") -> str:
        folder = tmp_path / local.store.cluster_id / f"tensorboard/experiment/{experiment}/trial/{trial}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"".join(contents))
        return f"/trials/{trial}/media"

    return write


def test_everything_that_a_script_reports_is_shown_by_name_and_step(
    local: ServedSite, report: Callable[..., str]
) -> None:
    table = b"| class | found |\n|---|---|\n| cat | 3 |\n| - | - |"
    path = report(
        record(1, image(b"confusion", PNG + b"one"), part(1, b"loss") + varint(2 << 3 | 5) + struct.pack("<f", 1)),
        record(2, image(b"confusion", PNG + b"two"), histogram(b"weights"), tensor_histogram(b"biases")),
        record(3, text(b"notes", b"<b>bold</b>"), text(b"found", table)),
        record(
            4, part(1, b"tf") + part(8, part(1, 7) + part(8, b"8") + part(8, b"8") + part(8, PNG)) + plugin(b"images")
        ),
    )
    report(b"x" * 2000, name="profile.json")
    page = local.owner.get(path).text
    assert re.findall(r"<figcaption><strong>(.*?)<", page) == ["biases", "confusion", "found", "notes", "tf", "weights"]
    assert "&lt;b&gt;bold&lt;/b&gt;" in page and "<b>" not in page
    assert (
        '<th scope="row">cat</th><td>3</td></tr><tr><th scope="row">-</th><td>-</td>' in page
        and "---" not in page.partition("<table>")[2].partition("</table>")[0]
    )
    assert "-1 to 3, 8 values" in page and "0 to 2, 12 values" in page
    assert "profile.json" in page and "loss" not in page
    sources = [source.replace("&amp;", "&") for source in re.findall(r'<img src="([^"]*)"', page)]
    assert [local.owner.get(source).body for source in sources] == [PNG + b"two", PNG]
    assert local.owner.get(f"{IMAGE}?tag=confusion&step=1").body == PNG + b"one"
    assert f'src="{IMAGE}?tag=confusion&amp;step=1"' in local.owner.get(f"{path}?tag=confusion&step=1").text


@pytest.mark.parametrize("high", [0.0, 5e-324])
def test_a_histogram_of_equal_values_names_them(local: ServedSite, report: Callable[..., str], high: float) -> None:
    page = local.owner.get(report(record(1, histogram(b"bias", 0.0, high)))).text
    assert "All 8 values are 0." in page


def test_an_image_is_sent_with_its_type_in_a_sandbox(local: ServedSite, report: Callable[..., str]) -> None:
    known = {PNG: "png", b"\xff\xd8\xff\xe0": "jpeg", b"GIF89a": "gif", b"RIFF\0\0\0\0WEBPVP8 ": "webp"}
    path = report(*(record(step, image(b"i", data)) for step, data in enumerate([*known, HTML, b"<svg/>"])))
    for step, kind in enumerate(known.values()):
        answer = local.owner.get(f"{IMAGE}?tag=i&step={step}")
        assert answer.headers["content-type"] == f"image/{kind}"
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert answer.headers["x-content-type-options"] == "nosniff"
    report(record(0, part(1, b"bad") + part(4, b"\x22\x7f")), name="events.out.tfevents.2")
    assert local.owner.get(path).status == 200
    for query in ("tag=bad&step=0", "tag=i&step=4", "tag=i&step=5", "tag=i&step=6", "tag=other&step=0", ""):
        assert local.owner.get(f"{IMAGE}?{query}").status == 404


def test_links_out_of_the_directory_are_not_followed(
    local: ServedSite, report: Callable[..., str], tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(record(1, text(b"secret", b"words")))
    path = report()
    folder = next(tmp_path.glob("*/tensorboard/experiment/*/trial/*"))
    (folder / "events.out.tfevents.2").symlink_to(secret)
    assert "words" not in local.owner.get(path).text
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "named-by-nobody").touch()
    folder.symlink_to(tmp_path / "other")
    assert "named-by-nobody" not in local.owner.get(path).text


def test_a_trial_without_files_says_how_to_report(local: ServedSite, report: Callable[..., str]) -> None:
    path = report()
    assert "Nothing yet" in local.owner.get("/trials/1/media").text
    assert "Nothing yet" not in local.owner.get(path.replace("/media", "")).text


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ("x", ""),
        ({"type": "nosuch"}, "The files cannot be read: cannot open the recorded checkpoint_storage"),
        ({"type": "s3", "bucket": "some-bucket"}, "The files are at s3://some-bucket"),
    ],
)
def test_a_page_says_why_files_are_not_read(local: ServedSite, block: object, reason: str) -> None:
    experiment = local.store.create_experiment(config={"checkpoint_storage": block}).id
    trial = local.store.create_trial(experiment, hparams={}, seed=1).id
    page = local.owner.get(f"/trials/{trial}/media")
    assert page.status == 200 and "Nothing yet" in page.text
    assert reason in page.text


def test_files_that_are_removed_while_they_are_listed_are_left_out(
    local: ServedSite, report: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = report()
    report(b"x", name="gone.txt")
    report(b"x", name="kept.txt")
    read = Path.lstat

    def lstat(file: Path) -> os.stat_result:
        if file.name == "gone.txt":
            file.unlink()
        return read(file)

    monkeypatch.setattr(Path, "lstat", lstat)
    page = local.owner.get(path).text
    assert "kept.txt" in page and "gone.txt" not in page


def test_damaged_files_are_read_up_to_the_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are changed at random end the reading, or change what is read, and raise nothing."""
    good = b"".join(record(step, image(b"i", PNG), histogram(b"h"), text(b"t", b"x")) for step in range(3))
    generator = random.Random(7)
    for _ in range(300):
        damaged = bytearray(good)
        for _ in range(generator.randint(1, 8)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        file, found = BytesIO(bytes(damaged[: generator.randrange(len(damaged))])), dict[str, _event_files.Reported]()
        index_file(file, "a", found, float("inf"))
        for tag, one in found.items():
            for place in one.places.values():
                content = read_content(file, place, tag, one.kind)
                assert content is None or one.kind in Kind


def test_what_is_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dict[str, _event_files.Reported]()
    monkeypatch.setattr(_event_files, "MOST_TAGS", 3)
    monkeypatch.setattr(_event_files, "MOST_ITEMS", 4)
    events = b"".join(record(step, *(image(b"i%d" % number, PNG) for number in range(9))) for step in range(9))
    index_file(BytesIO(events), "a", found, float("inf"))
    assert (len(found), sum(len(one.places) for one in found.values())) == (3, 4)
    found.clear()
    huge = struct.pack("<Q", 1 << 40)
    index_file(BytesIO(huge + crc(huge) + events), "a", found, float("inf"))
    index_file(BytesIO(events), "a", found, 0.0)
    assert found == {}


def test_many_fields_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of 16 MiB has room for eight million, which would take a gigabyte of memory and half a minute."""
    monkeypatch.setattr(_event_files, "MOST_FIELDS", 50)
    empty, shown = part(5, b"") * 60, image(b"i", PNG)
    for event in (empty, part(5, b"\x0a\0" * 60), part(5, part(1, part(8, b"") * 60 + shown))):
        found = dict[str, _event_files.Reported]()
        index_file(BytesIO(framed(event + part(5, part(1, shown)))), "a", found, float("inf"))
        assert found == {}
    damaged = framed(empty + part(5, part(1, shown)))
    place = _event_files.Place("a", 12, len(damaged) - 16)
    assert read_content(BytesIO(damaged), place, "i", Kind.IMAGE) is None
    for decode in (decode_image, decode_text, decode_histogram):
        with pytest.raises(ValueError, match="too many fields"):
            decode(memoryview(part(9, b"") * 60))


def test_a_page_of_large_records_ends_in_time(
    local: ServedSite, report: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = report(record(1, text(b"notes", b"words")))
    assert "words" in local.owner.get(path).text
    monkeypatch.setattr(media, "MOST_SECONDS", -1.0)
    page = local.owner.get(path).text
    assert "words" not in page and "reading this page took too long" in page and "later values are missing" not in page
    report(b"", name="events.out.tfevents.2")
    assert "later values are missing" in local.owner.get(path).text
