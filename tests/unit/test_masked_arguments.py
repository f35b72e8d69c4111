"""Secrets in command lines are not kept, and what only looks like one is."""

import shlex

import pytest

from gpuprof.collectors.masked_arguments import masked_arguments, masked_text

SECRET = "S3cr3t-4242"


@pytest.mark.parametrize(
    "words",
    [
        f"train.py --wandb-key {SECRET}",
        f"train.py --wandb-key={SECRET}",
        f"train.py --wandb_api_key {SECRET} --lr 3",
        f"train.py -token {SECRET}",
        f"train.py --hfToken {SECRET}",
        f"train.py --HF_TOKEN {SECRET}",
        f"env API_KEY={SECRET} train.py",
        f"train.py logger.api_key={SECRET} +hub.token={SECRET}",
        f"train.py --db-password {SECRET} --passwd {SECRET} --secret {SECRET}",
        f"train.py --auth {SECRET} --credentials {SECRET} --aws-access-key-id {SECRET}",
        f"train.py --tracking https://me:{SECRET}@host:80/path",
        f"train.py --tracking=postgresql://me:{SECRET}@host/runs",
        f"train.py https://{SECRET}@host/x.git",
        f"train.py 'https://host/x?token={SECRET}&part=3'",
        f"""train.py '{{"user": "me", "password": "{SECRET}"}}'""",
        f"train.py --header 'Authorization: {SECRET}'",
        f'sh -c "python train.py --api-key {SECRET} --lr 3"',
        f"""sh -c "API_KEY='{SECRET}' python train.py" """,
    ],
)
def test_a_secret_is_masked_and_its_name_is_kept(words: str) -> None:
    given = shlex.split(words)
    masked = masked_arguments(given)
    assert SECRET not in " ".join(masked)
    assert len(masked) == len(given)
    assert "***" in " ".join(masked)
    assert SECRET not in masked_text(words)
    assert masked_arguments(masked) == masked


@pytest.mark.parametrize(
    "words",
    [
        "train.py --lr 3e-4 --model gpt2 --steps=100 data.path=/data/x",
        "train.py --max-tokens 512 --tokens-per-batch 4096 --tokenizer gpt2",
        "train.py --pad-token-id 0 --key-dim 64 --author me",
        "train.py --use-auth --lr 3",
        "train.py git@host:me/x.git ssh://git@host/x https://host:8080/path s3://bucket/x",
        "-m pkg.train C:/data x=y:z",
    ],
)
def test_other_arguments_stay_as_they_are(words: str) -> None:
    given = tuple(words.split())
    assert masked_arguments(given) == given
    assert masked_text(words) == words
