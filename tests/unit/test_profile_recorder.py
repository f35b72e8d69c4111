"""What records beside the profile: rows are gathered, and no failure reaches the program."""

from itertools import count

from gpuprof.collectors.live.profile_recorder import ProfileRecorder, ProfileRecording, Rows


class Recorder:
    """Records its number; fails where it is told to."""

    def __init__(self, subject: str, number: int = 0, *, fails_in: str = "") -> None:
        self.subject = subject
        self.number = number
        self.fails_in = fails_in
        self.running = False

    def start(self) -> None:
        assert not self.running
        self.running = True
        if self.fails_in == "start":
            raise RuntimeError("no\nroom")

    def stop(self) -> Rows:
        self.running = False
        if self.fails_in == "stop":
            raise RuntimeError("gone")
        return {"ranges": [{"name": self.subject, "start_ns": self.number}]}


def test_the_rows_of_all_are_gathered_by_table_for_each_profile() -> None:
    numbers = count(1)

    def recorders() -> list[ProfileRecorder]:
        number = next(numbers)
        return [Recorder("one", number), Recorder("two", number)]

    recording = ProfileRecording(recorders)
    for profile in (1, 2):
        recording.start()
        rows = recording.stop()
        assert {(row["name"], row["start_ns"]) for row in rows["ranges"]} == {
            ("one", profile),
            ("two", profile),
        }
    assert recording.stop() == {}
    assert recording.notes == []


def test_one_that_fails_is_left_out_and_said_once() -> None:
    recording = ProfileRecording(
        lambda: [
            Recorder("early things", fails_in="start"),
            Recorder("late things", fails_in="stop"),
            Recorder("x"),
        ]
    )
    for _ in range(2):
        recording.start()
        assert [row["name"] for row in recording.stop()["ranges"]] == ["x"]
    assert len(recording.notes) == 2
    assert any(note.startswith("early things could not be recorded: ") for note in recording.notes)
    assert all("\n" not in note for note in recording.notes)


def test_what_a_profile_that_could_not_be_ended_left_running_ends_with_the_next() -> None:
    made: list[Recorder] = []

    def recorders() -> list[ProfileRecorder]:
        made.append(Recorder("x", len(made)))
        return [made[-1]]

    recording = ProfileRecording(recorders)
    recording.start()
    recording.start()
    assert [one.running for one in made] == [False, True]
    assert recording.stop() == {"ranges": [{"name": "x", "start_ns": 1}]}
