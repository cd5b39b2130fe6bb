"""The mock server itself, where other tests lean on it."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from cordisd import mock as mc
from cordisd.mock import MockModelThread


def test_a_server_in_a_thread_answers_another_process_and_records_it() -> None:
    program = (
        "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], b'{\"stream\":true}').read().decode())"
    )
    with MockModelThread([mc.text("he", "llo")]) as mock:
        command = [sys.executable, "-c", program, mock.url + "/chat/completions"]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert '"content": "he"' in shown
        assert shown.rstrip().endswith("data: [DONE]")
        (sent,) = mock.requests
    assert (sent.method, sent.path, sent.json) == ("POST", "/chat/completions", {"stream": True})


def test_a_request_past_the_script_is_refused_and_says_so() -> None:
    with MockModelThread([]) as mock, pytest.raises(urllib.error.HTTPError, match="400") as caught:
        urllib.request.urlopen(mock.url + "/v1/chat/completions", b"{}")
    with caught.value as answer:
        assert b"mock script exhausted: request 1 of 0" in answer.read()


def test_a_script_may_be_a_function_of_the_request() -> None:
    with MockModelThread(lambda sent: mc.error(404, sent.path)) as mock:
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(mock.url + "/x/chat/completions", b"{}")
        with caught.value as answer:
            assert b'"message": "/x/chat/completions"' in answer.read()
