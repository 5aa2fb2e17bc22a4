"""The doctor on other plugins that go for the same methods; their code never runs."""

import pytest
from doctor_site import Site

TARGET = "sglang.srt.managers.scheduler.Scheduler.get_next_batch_to_run"
CRASH = "raise AssertionError('imported')\n"


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    made.add_sglang("0.5.23")
    return made


def claims(site, source, **environ):
    """(state, target) of what the doctor found in another plugin."""
    site.add_plugin("rival", source + CRASH)
    found = site.examine(SGLANG_PPFIX="1", **environ).get("other_plugins", [])
    return [(check["state"], check["subject"]) for check in found]


@pytest.mark.parametrize(
    "source",
    [
        f"register('{TARGET}', new, HookType.REPLACE)\n",
        f"@plugin_hook('{TARGET}', type=HookType.REPLACE)\ndef new(self): pass\n",
        (
            "S = 'sglang.srt.managers.scheduler.Scheduler'\n"
            "register(f'{S}.get_next_batch_to_run', new, HookType.REPLACE)\n"
        ),
        (
            "from sglang.srt.managers.scheduler import Scheduler\n"
            "Scheduler.get_next_batch_to_run = new\n"
        ),
        (
            "import sglang.srt.managers.scheduler as s\n"
            "setattr(s.Scheduler, 'get_next_batch_to_run', new)\n"
        ),
    ],
)
def test_replaced(site, source):
    """Catches a way of replacing a method that goes unseen."""
    assert claims(site, source) == [("fail", TARGET)]


def test_class_replaced(site):
    """Catches a look at methods only."""
    source = "r('sglang.srt.managers.scheduler.Scheduler', New, HookType.REPLACE)\n"
    ((state, subject),) = claims(site, source)
    assert state == "fail"
    assert subject.startswith("sglang.srt.managers.scheduler.Scheduler.")


def test_hook_on_the_mixin(site):
    """Catches a mixin's method that is not seen to be ours."""
    managers = site.folder / "sglang" / "srt" / "managers"
    managers.mkdir(parents=True)
    (managers / "scheduler.py").write_text(
        "from sglang.srt.managers.scheduler_pp_mixin import SchedulerPPMixin\n"
        "class Scheduler(SchedulerPPMixin): pass\n"
    )
    (managers / "scheduler_pp_mixin.py").write_text(
        "class SchedulerPPMixin:\n    def init_pp_loop_state(self): pass\n"
    )
    mixin = "sglang.srt.managers.scheduler_pp_mixin.SchedulerPPMixin"
    found = claims(site, f"r('{mixin}.init_pp_loop_state', f, HookType.AROUND)\n")
    ours = "sglang.srt.managers.scheduler.Scheduler.init_pp_loop_state"
    assert found == [("warn", ours)]


@pytest.mark.parametrize(
    "source",
    [
        f"register('{TARGET}', f, HookType.AROUND)\n",
        f"register('{TARGET}', f)\n",
        f"for name in ('{TARGET}',): register(name, f)\n",
    ],
)
def test_hooks_that_go_together(site, source):
    """Catches an alarm where both hooks run."""
    assert claims(site, source) == [("ok", TARGET)]


@pytest.mark.parametrize(
    "source",
    [
        "register('sglang.srt.managers.scheduler.Scheduler.flush_cache', f)\n",
        "# sglang: Scheduler.get_next_batch_to_run = new\n",
        "class Scheduler: pass\nScheduler.other = 1  # sglang, get_next_batch_to_run\n",
    ],
)
def test_no_claim(site, source):
    """Catches an alarm about something else."""
    assert claims(site, source) == [("ok", None)]


def test_a_plugin_that_is_not_loaded(site):
    """Catches an alarm about a plugin that SGLANG_PLUGINS leaves out."""
    source = f"register('{TARGET}', new, HookType.REPLACE)\n"
    assert claims(site, source, SGLANG_PLUGINS="ppfix") == []


def test_only_rivals_are_left_out(site):
    """Catches a command that drops plugins which do no harm, platforms among them, or
    that lets one rival in again while it leaves out the other."""
    replace = f"register('{TARGET}', new, HookType.REPLACE)\n"
    site.add_plugin("rival", replace + CRASH)
    site.add_plugin("second", replace + CRASH)
    site.add_plugin("harmless", CRASH)
    points = "[sglang.srt.platforms]\nacme = acme:activate\n"
    site.add_distribution("acme", "1.0", points + "[elsewhere]\nnot_sglang = a:b\n")
    checks = site.examine(SGLANG_PPFIX="1")["other_plugins"]
    (fix,) = {check["fix"] for check in checks if check["state"] == "fail"}
    command, _, said = fix.partition("    # without ")
    names = command.removeprefix("export SGLANG_PLUGINS=").split(",")
    assert sorted(names) == ["acme", "harmless", "ppfix", "ppfix_lab"]
    assert said == "rival, second"


def test_a_list_that_is_given_is_kept(site):
    """Catches a command that lets in what the user left out."""
    source = f"register('{TARGET}', new, HookType.REPLACE)\n"
    site.add_plugin("rival", source + CRASH)
    site.add_plugin("harmless", CRASH)
    site.add_plugin("unwanted", CRASH)
    given = "rival, harmless, ppfix"
    checks = site.examine(SGLANG_PPFIX="1", SGLANG_PLUGINS=given)["other_plugins"]
    (bad,) = (check for check in checks if check["state"] == "fail")
    assert bad["fix"].startswith("export SGLANG_PLUGINS=harmless,ppfix ")
