"""What records beside the profile: rows are gathered, and no failure reaches the program."""

from gpuprof.collectors.live.profile_recorder import ProfileRecorder, ProfileRecording, Rows


class Recorder:
    """Counts how often it ran; fails where it is told to."""

    def __init__(self, subject: str, *, fails_in: str = "") -> None:
        self.subject = subject
        self.fails_in = fails_in
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        if self.fails_in == "start":
            raise RuntimeError("no\nroom")

    def stop(self) -> Rows:
        if self.fails_in == "stop":
            raise RuntimeError("gone")
        return {"ranges": [{"name": self.subject, "start_ns": self.starts}]}


def test_the_rows_of_all_are_gathered_by_table_for_each_profile() -> None:
    recorders: list[ProfileRecorder] = [Recorder("one"), Recorder("two")]
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
    late = Recorder("late things", fails_in="stop")
    recording = ProfileRecording([Recorder("early things", fails_in="start"), late, Recorder("x")])
    for _ in range(2):
        recording.start()
        assert [row["name"] for row in recording.stop()["ranges"]] == ["x"]
    assert len(recording.notes) == 2
    assert any(note.startswith("early things could not be recorded: ") for note in recording.notes)
    assert all("\n" not in note for note in recording.notes)
