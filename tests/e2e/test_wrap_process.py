"""`penstock wrap` as a process: the client has the signals, and where it stops, the whole job stops."""

import contextlib
import json
import os
import signal
import subprocess
import sys

from cli_process import COMMAND, environment

CLIENT = f"""#!{sys.executable}
import os, signal, sys, urllib.request
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])  # they wait until they are waited for
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
try:
    urllib.request.urlopen(url, b'{{"model": "m", "messages": []}}')
except OSError as error:
    print("asked", error.code, flush=True)
signal.sigwait([signal.SIGINT])
print("interrupted", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
print("continued", flush=True)
signal.sigwait([signal.SIGTERM])
print("terminated", flush=True)
sys.exit(5)
"""


def test_signals_are_the_clients_and_its_stop_is_ours(tmp_path):
    program = tmp_path / "claude"
    program.write_text(CLIENT)
    program.chmod(0o755)
    options = ("--upstream", "http://127.0.0.1:9", "--store", f"sqlite:///{tmp_path}/w.db", "--json")
    wrap = [COMMAND, "wrap", "claude", "--program", program, "--set", "gateway.retries=0", *options]
    with subprocess.Popen(
        wrap,
        env=environment(XDG_DATA_HOME=str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group, as a shell makes one for a job
    ) as child:
        try:
            assert child.stdout.readline() == "asked 502\n", child.stderr.read()
            os.killpg(child.pid, signal.SIGINT)  # as Ctrl-C
            assert child.stdout.readline() == "interrupted\n"
            _, status = os.waitpid(child.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            os.killpg(child.pid, signal.SIGCONT)  # as fg
            assert child.stdout.readline() == "continued\n"
            child.send_signal(signal.SIGTERM)
            assert child.stdout.read() == "terminated\n"
            assert child.wait(20) == 5
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        told = json.loads(child.stderr.read())
    assert (told["requests"], told["problems"]) == (1, 1)
    assert told["log"] == str(tmp_path / "penstock" / "wrap.log")
