"""A child of the other side: ``python -m benchmarks.peers.theirs``, in the peers' environment.

    trl         GRPOTrainer, sampling with `generate`
    trl_cb      GRPOTrainer, sampling with transformers' continuous batching
    bare        a loop of `generate` and a hand-written step: torch and transformers, nothing else
    generate    sampling only

Settings are those that make each of them fastest here while doing the same work: no gradient checkpointing, no
evaluation, no saving, nothing reported. `posttrain.runs.speed` is imported for the line to the parent and the workloads
only: those modules need numpy and nothing of posttrain's.
"""

import contextlib
import sys
import tempfile
import time
import traceback
from typing import Any

import torch

from benchmarks.peers.settings import BETAS, CLIP, CLIP_NORM, EPSILON, STEPS
from posttrain.runs.speed.children import Enough, Line, Steps
from posttrain.runs.speed.workloads import GROUP, Workload, learning_rate, share_of_digits, text_of, workload


def main() -> int:
    line = Line()
    question = line.next()
    torch.set_num_threads(question["threads"])
    torch.manual_seed(0)
    kinds = {"trl": train_with_trl, "trl_cb": train_with_trl, "bare": train_bare, "generate": only_generate}
    try:
        with contextlib.suppress(Enough):
            kinds[question["kind"]](Steps(line), question, workload(question["workload"], question["samples"]))
        line.goodbye()
    except Exception as error:
        traceback.print_exc()
        line.answer(error=f"{type(error).__name__}: {error}")
        return 1
    return 0


def load(question: dict[str, Any]) -> tuple[Any, Any]:
    """The model and its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(question["model"], dtype=getattr(torch, question["dtype"]))
    model.to(question["device"])
    return model, AutoTokenizer.from_pretrained(question["model"])


def clock(model: Any) -> float:
    """Seconds, after what a GPU was asked for is done."""
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def logp_of_a_text(model: Any) -> list[float]:
    """Log-probabilities of a fixed text: every side must say the same of it."""
    ids = torch.arange(32, 96, device=model.device)[None]
    with torch.no_grad():
        logp = model(ids).logits.float().log_softmax(-1)
    return logp[0, :-1].gather(1, ids[0, 1:, None]).squeeze(1).tolist()


# TRL


def train_with_trl(steps: Steps, question: dict[str, Any], asked: Workload) -> None:
    """GRPOTrainer, a step a turn."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    class Timed(GRPOTrainer):
        """Has how long it samples."""

        sampling_seconds = judging_seconds = 0.0
        tokens = 0

        def _generate_single_turn(self, *arguments: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            result = super()._generate_single_turn(*arguments, **named)
            self.sampling_seconds = time.perf_counter() - begun
            self.tokens = sum(map(len, result[0]))
            return result

        def _generate_and_score_completions(self, *arguments: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            result = super()._generate_and_score_completions(*arguments, **named)
            self.judging_seconds = time.perf_counter() - begun
            return result

    class Turns(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            steps.ready(logp=logp)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **__: Any) -> None:
            if "loss" in logs:
                steps.done(
                    tokens=trainer.tokens,
                    reward=logs["reward"],
                    loss=float(logs["loss"]),
                    gradient_norm=float(logs["grad_norm"]),
                    sampling_seconds=trainer.sampling_seconds,
                    not_learning_seconds=trainer.judging_seconds,
                )

    def reward(completions: list[str], **_: Any) -> list[float]:
        return [share_of_digits(completion) for completion in completions]

    model, tokenizer = load(question)
    logp = logp_of_a_text(model)
    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder,
            use_cpu=question["device"] == "cpu",
            bf16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=question.get("micro_batch") or question["samples"],
            gradient_accumulation_steps=question["samples"] // (question.get("micro_batch") or question["samples"]),
            num_generations=GROUP,
            max_completion_length=asked.limit,
            max_steps=STEPS,
            learning_rate=learning_rate(asked.name, question["model"]),
            lr_scheduler_type="constant",
            adam_beta1=BETAS[0],
            adam_beta2=BETAS[1],
            max_grad_norm=CLIP_NORM,
            weight_decay=0.0,
            beta=0.0,
            temperature=1.0,
            epsilon=CLIP,
            loss_type="dapo",
            scale_rewards="group",
            shuffle_dataset=False,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            use_transformers_continuous_batching=question["kind"] == "trl_cb",
            transformers_continuous_batching_config=question.get("continuous_batching"),
        )
        trainer = Timed(
            model=model,
            reward_funcs=reward,
            args=settings,
            train_dataset=Dataset.from_list([{"prompt": text_of(prompt)} for prompt in asked.prompts]),
            processing_class=tokenizer,
            callbacks=[Turns()],
        )
        trainer.train()


# Nothing but torch and transformers


def train_bare(steps: Steps, question: dict[str, Any], asked: Workload) -> None:
    """GRPO in one loop, the way a careful person writes it down: padded batches, one forward pass."""
    model, tokenizer = load(question)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=learning_rate(asked.name, question["model"]), betas=BETAS, weight_decay=0.0
    )
    steps.ready(logp=logp_of_a_text(model))
    while True:
        begun = clock(model)
        ids, mask, written = sample(model, tokenizer, asked)
        sampled = clock(model)
        new = zip(ids[:, -written.shape[1] :], written.bool(), strict=True)
        texts = [tokenizer.decode(row[kept], skip_special_tokens=True) for row, kept in new]
        reward = torch.tensor([share_of_digits(text) for text in texts], device=ids.device)
        grouped = reward.view(-1, GROUP)
        advantage = ((grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + EPSILON)).view(-1, 1)
        scored = clock(model)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        # The logits of what was written, and no others.
        count = written.shape[1]
        logits = model(ids, attention_mask=mask, position_ids=positions, logits_to_keep=count + 1).logits[:, :-1]
        chosen = ids[:, -count:, None]
        logp = logits.float().log_softmax(-1).gather(2, chosen).squeeze(2)
        ratio = (logp - logp.detach()).exp()
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
        loss = -(surrogate * written).sum() / written.sum()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps.done(
            tokens=int(written.sum()),
            reward=float(reward.mean()),
            loss=float(loss.detach()),
            gradient_norm=float(norm),
            sampling_seconds=sampled - begun,
            not_learning_seconds=scored - begun,
        )


def only_generate(steps: Steps, question: dict[str, Any], asked: Workload) -> None:
    """Sampling, again and again."""
    model, tokenizer = load(question)
    steps.ready(logp=logp_of_a_text(model))
    while True:
        _, _, written = sample(model, tokenizer, asked)
        steps.done(tokens=int(written.sum()))


@torch.no_grad()
def sample(model: Any, tokenizer: Any, asked: Workload) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids of prompts and completions, padded on both sides, which of them are tokens, and which were written."""
    texts = [text_of(prompt) for prompt in asked.prompts for _ in range(GROUP)]
    given = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left")
    given = {name: given[name].to(model.device) for name in ("input_ids", "attention_mask")}
    ids = model.generate(
        **given, max_new_tokens=asked.limit, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, disable_compile=True
    )
    new = ids[:, given["input_ids"].shape[1] :]
    is_end = new == tokenizer.eos_token_id
    written = ((is_end.cumsum(1) - is_end.int()) == 0).int()
    return ids, torch.cat([given["attention_mask"], written], 1), written


if __name__ == "__main__":
    sys.exit(main())
