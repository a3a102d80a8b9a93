"""Contestant: vLLM's offline engine in its compiled mode; runs in an environment of its own."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image
from protocol import Answer, Question, serve
from vllm import LLM, SamplingParams


def contestant(folder: str, num_threads: int) -> Answer:
    """The model in `folder`, in bfloat16; threads come from OMP_NUM_THREADS."""
    engine = LLM(
        model=folder,
        dtype="bfloat16",
        max_model_len=2048,
        max_num_seqs=16,
        max_num_batched_tokens=2048,
        limit_mm_per_prompt={"image": 1, "video": 0},
        enable_prefix_caching=True,
        seed=0,
    )
    tokenizer = engine.get_tokenizer()

    def prompt(question: Question) -> dict[str, object]:
        content = [{"type": "image"}, {"type": "text", "text": question.words}]
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
        )
        picture = Image.open(question.picture).convert("RGB")
        return {"prompt": text, "multi_modal_data": {"image": picture}}

    def answer(questions: Sequence[Question], max_tokens: int) -> int:
        params = SamplingParams(
            temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False
        )
        outputs = engine.generate([prompt(q) for q in questions], params, use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    return answer


if __name__ == "__main__":
    serve(contestant)
