#!/usr/bin/env python3
"""The client `openai` asking `anyorder serve --http`, whose answers without a model are known (tests/launcher/serve/fake_service.h): the
prompt's words backwards.
"""
import os
import sys
import tempfile
import time
from pathlib import Path

try:
    import openai
except ImportError as missing:
    print(f"SKIPPED: {missing}; name an interpreter that has openai in ANYORDER_PARITY_PYTHON")
    sys.exit(77)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "launcher/serve"))
from serve_client import Server

PROGRAM = Path(os.environ["ANYORDER_BIN"]) / "fake_serve"
TOKEN = "0123456789abcdef0123456789abcdef"
MESSAGES = [{"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "one two"}]}]
ANSWER = "<|im_start|>assistant two"


def check_completions(client, model):
    answer = client.completions.create(model=model, prompt=["a b", "c"], n=2, echo=True, logprobs=2, temperature=0, seed=5, max_tokens=3)
    assert [choice.text for choice in answer.choices] == ["a b b a", "a b a", "c c", "c"], answer
    found = answer.choices[0].logprobs
    assert found.tokens == ["a", " b", " b", " a"] and found.token_logprobs == [None, -0.5, -0.5, -0.5] and found.text_offset == [0, 1, 3, 5], found
    assert found.top_logprobs == [None] + [{" other": -0.25, token: -0.5} for token in found.tokens[1:]], found
    ids = client.completions.create(model=model, prompt=[5, 6], max_tokens=1, stop=["x"], presence_penalty=0, logit_bias={}, user="me")
    assert ids.choices[0].text == " t6" and ids.usage.total_tokens == 3, ids
    pieces = list(client.completions.create(model=model, prompt="a b c", stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in pieces[:-1]) == " c b a" and pieces[-1].usage.completion_tokens == 3, pieces


def check_chat(client, model):
    answer = client.chat.completions.create(model=model, messages=MESSAGES, max_completion_tokens=20, response_format={"type": "text"})
    message = answer.choices[0].message
    assert message.content == ANSWER and message.role == "assistant" and answer.choices[0].finish_reason == "stop", answer
    # What comes back is part of the next question, with all that the client keeps of it.
    again = client.chat.completions.create(model=model, messages=[*MESSAGES, message, message.model_dump(), {"role": "user", "content": "three"}])
    assert again.choices[0].message.content == "<|im_start|>assistant three", again
    with client.chat.completions.stream(model=model, messages=MESSAGES) as stream:
        told = "".join(event.delta for event in stream if event.type == "content.delta")
        assert told == stream.get_final_completion().choices[0].message.content == ANSWER, told


def check_errors(client, model):
    for ask, kind, words in (
            (lambda: client.completions.create(model="gpt-4", prompt="a"), openai.NotFoundError, "this server has"),
            (lambda: client.models.retrieve("gpt-4"), openai.NotFoundError, "there is no model"),
            (lambda: client.completions.create(model=model, prompt="a fault"), openai.BadRequestError, "the word fault"),
            (lambda: client.chat.completions.create(model=model, messages=MESSAGES, logprobs=True), openai.BadRequestError, "/v1/completions has it"),
            (lambda: client.with_options(api_key="wrong").models.list(), openai.AuthenticationError, "Authorization")):
        try:
            ask()
        except kind as fault:
            assert words in fault.body["message"], fault
        else:
            raise AssertionError(f"no {kind} that says {words}")


def check_cancel(folder):
    """A client that leaves a stream, or whose patience ends, leaves its place to others."""
    hold = Path(folder) / "hold"
    hold.touch()
    with Server(PROGRAM, "--max-batch", 1, environment={**os.environ, "ANYORDER_FAKE_HOLD": str(hold)}) as server:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
        for streams in (True, False):
            try:
                client.with_options(timeout=1).completions.create(model=server.model, prompt="a", stream=streams)
            except openai.APITimeoutError:
                continue
            raise AssertionError("it was answered while nothing is computed")
        while server.expect("/health")["waiting"] > 0:
            time.sleep(0.01)
        hold.unlink()
    # To its end the text would take a minute.
    with Server(PROGRAM, "--max-batch", 1, environment={**os.environ, "ANYORDER_FAKE_MS": "200"}) as server:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0, timeout=30)
        long = " ".join(["a"] * 300)
        with client.completions.create(model=server.model, prompt=long, max_tokens=300, stream=True) as stream:
            assert next(iter(stream)).choices[0].text == " a"
        assert client.completions.create(model=server.model, prompt="d").choices[0].text == " d"


def main():
    print("openai", openai.__version__)
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        token.write_text(TOKEN + "\n")
        token.chmod(0o600)
        with Server(PROGRAM, "--token-file", token) as server:
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=TOKEN, max_retries=0)
            model = client.models.list().data[0].id
            assert model == server.model == client.models.retrieve(model).id, model
            for check in (check_completions, check_chat, check_errors):
                check(client, model)
        check_cancel(folder)
    print("the client understands every answer")


if __name__ == "__main__":
    main()
