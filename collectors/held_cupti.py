"""What a capture says where another tool held CUPTI, so that what has it can take the note back."""


def held_sentence(tool: str) -> str:
    """That device work is not in the capture, and who has it instead."""
    return (
        f"{tool} holds CUPTI in this process, so torch.profiler recorded operators and no device "
        "work; the tool's own recording has that, and the steps as NVTX ranges"
    )


def is_held_sentence(sentence: str) -> bool:
    """Whether `held_sentence` made it."""
    tool, _, _ = sentence.partition(" holds CUPTI")
    return sentence == held_sentence(tool)


def suspect_sentence(tool: str) -> str:
    """That device work is missing, and who may be why."""
    return (
        f"torch.profiler recorded no device work, although the program used a GPU: {tool} may hold "
        "CUPTI, which only one tool of a process can; run without it"
    )
