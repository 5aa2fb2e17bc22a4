"""Settings: every bad value is refused in one line that names all three parts."""

import pytest

from sglang_ppfix.settings import (
    LogLevel,
    Mode,
    Policy,
    SettingError,
    Settings,
    read,
)


def test_nothing_set_means_off():
    """Catches a plugin that acts without being asked."""
    assert read({}) == Settings()
    assert read({"SGLANG_PPFIX": " "}).mode is Mode.OFF


def test_all_settings(tmp_path):
    """Catches a setting that is read under another name or not at all."""
    settings = read(
        {
            "SGLANG_PPFIX": "auto",
            "SGLANG_PPFIX_POLICY": "stock",
            "SGLANG_PPFIX_SLOTS": "6",
            "SGLANG_PPFIX_LOG": "All-Ranks",
            "SGLANG_PPFIX_SUMMARY_LAPS": "10",
            "SGLANG_PPFIX_DECISION_LOG": str(tmp_path),
            "SGLANG_PPFIX_ALLOW_UNTESTED": "1",
            "UNRELATED": "x",
            "SGLANG_PPFIX_LAB": "1",
            "SGLANG_PPFIX_CACHE": "/somewhere",
        }
    )
    assert settings == Settings(
        Mode.AUTO, Policy.STOCK, 6, LogLevel.ALL_RANKS, 10, tmp_path, True
    )


def test_observe_decides_nothing():
    """Catches a flag observe that lets the balanced policy decide."""
    assert read({"SGLANG_PPFIX": "observe"}).policy is Policy.OBSERVE


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("SGLANG_PPFIX", "yes", "0, 1, auto, observe"),
        ("SGLANG_PPFIX", "2", "0, 1, auto, observe"),
        ("SGLANG_PPFIX_POLICY", "fair", "balanced"),
        ("SGLANG_PPFIX_SLOTS", "0", "whole number from 1"),
        ("SGLANG_PPFIX_SLOTS", "-3", "whole number from 1"),
        ("SGLANG_PPFIX_SLOTS", "four", "whole number from 1"),
        ("SGLANG_PPFIX_LOG", "debug", "off, summary, admissions, all-ranks"),
        ("SGLANG_PPFIX_SUMMARY_LAPS", "0", "whole number from 1"),
        ("SGLANG_PPFIX_ALLOW_UNTESTED", "true", "0, 1"),
        ("SGLANG_PPFIX_DECISION_LOG", __file__, "a folder"),
        ("SGLANG_PPFIX_POLCY", "stock", "SGLANG_PPFIX_POLICY"),
    ],
)
def test_bad_values(name, value, allowed):
    """Catches a bad value that is ignored, and a message that does not help."""
    with pytest.raises(SettingError) as error:
        read({"SGLANG_PPFIX": "1", name: value})
    line = str(error.value)
    assert "\n" not in line
    assert name in line
    assert value in line
    assert allowed in line


def test_observe_and_another_policy_contradict():
    """Catches one of the two winning silently."""
    with pytest.raises(SettingError, match="SGLANG_PPFIX_POLICY='balanced'"):
        read({"SGLANG_PPFIX": "observe", "SGLANG_PPFIX_POLICY": "balanced"})
