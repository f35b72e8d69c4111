"""Settings that cost, each with its evidence and what to do."""

from collections.abc import Sequence

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Block, Column, Fact, Facts, Notices, Paragraph, Table
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.setting_figures import CostlySetting

_COLUMNS = (
    Column("Setting", "code"),
    Column("What it does"),
    Column("Evidence"),
    Column("At most to gain", "number"),
    Column("What to do"),
    Column("Source", "reference"),
)
# In a terminal.
_NAMED = 3


def _costly(analysis: Analysis) -> tuple[CostlySetting, ...]:
    return () if analysis.settings is None else analysis.settings.costly


def _name(setting: CostlySetting) -> str:
    return f"{setting.name}={setting.value}" if setting.value else setting.name


def _warning(setting: CostlySetting) -> str:
    return f"{_name(setting)}: {setting.does}; {setting.evidence}: {setting.remedy}"


def _gain(setting: CostlySetting) -> str:
    if setting.gain_ns is None:
        return formatting.UNKNOWN
    return f"{formatting.duration(setting.gain_ns)}, {setting.assumption}"


def _fact(label: str, setting: CostlySetting) -> Fact:
    note = f"{setting.evidence}; {setting.remedy}"
    if setting.gain_ns is not None:
        note += f". At most {formatting.duration(setting.gain_ns)} a step, {setting.assumption}"
    return Fact(label, _name(setting), note)


def _summary(analysis: Analysis) -> Sequence[Block]:
    costly = _costly(analysis)
    alarming = [setting for setting in costly if setting.falsifies]
    others = [setting for setting in costly if not setting.falsifies][:_NAMED]
    blocks: list[Block] = []
    if others:
        named = enumerate(others)
        facts = (_fact("" if index else "Setting", setting) for index, setting in named)
        blocks.append(Facts(tuple(facts)))
    if alarming:
        blocks.append(Notices(tuple(_warning(setting) for setting in alarming)))
    return tuple(blocks)


def _body(analysis: Analysis) -> Sequence[Block]:
    settings = analysis.settings
    if settings is None or not (settings.costly or settings.harmless):
        return ()
    blocks: list[Block] = []
    alarming = [setting for setting in settings.costly if setting.falsifies]
    if alarming:
        blocks.append(Notices(tuple(_warning(setting) for setting in alarming)))
    if settings.costly:
        blocks.append(Table(_COLUMNS, tuple(_row(setting) for setting in settings.costly)))
    if settings.harmless:
        names = ", ".join(settings.harmless)
        said = f"Set, and nothing in this capture shows that it costs: {names}."
        blocks.append(Paragraph(said, "note"))
    return tuple(blocks)


def _row(setting: CostlySetting) -> tuple[str, ...]:
    return (
        _name(setting),
        setting.does,
        setting.evidence,
        _gain(setting),
        setting.remedy,
        setting.source,
    )


SECTION = Section(
    key="settings",
    title=titled("Settings"),
    fields=("settings",),
    summary=_summary,
    body=_body,
)
