#!/usr/bin/env python3
"""A kubectl for tests: objects are files of a directory, and pods run on this host.

A pod executes its scripts in a directory of its own, which stands for /tmp and /volume."""

import json
import os
import subprocess
import sys
import threading

home = os.environ["FAKE_CLUSTER"]
arguments = [word for word in sys.argv[1:] if not word.startswith(("--namespace=", "--context="))]
with open(f"{home}/calls", "a", encoding="utf-8") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\n")
objects = f"{home}/objects.json"


def load():
    try:
        with open(objects, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return []


def store(items):
    with open(objects, "w", encoding="utf-8") as file:
        json.dump(items, file)


def pod(job):
    labels = job["spec"]["template"]["metadata"]["labels"]
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    if job["spec"]["template"]["spec"]["containers"][0]["image"] == "absent":
        # A cluster tries again without end, so that the pod never fails.
        waiting = {"reason": "ImagePullBackOff", "message": "there is no image 'absent'"}
        status = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}
    return {"metadata": {"name": job["metadata"]["name"] + "-abcde", "labels": labels}, "status": status}


def is_selected(item):
    label, value = arguments[2].removeprefix("--selector=").split("=")
    return item["metadata"]["labels"].get(label) == value


if arguments[0] == "create":
    items = json.load(sys.stdin)["items"]
    claims = [item["spec"] for item in items if item["kind"] == "PersistentVolumeClaim"]
    if any(claim["storageClassName"] == "refused" for claim in claims):
        sys.exit("Error from server (Forbidden): claims are refused")
    store(load() + items)
elif arguments[0] == "get":
    jobs = [item for item in load() if item["kind"] == "Job" and is_selected(item)]
    # Not in the order of their instances.
    pods = [pod(job) for job in reversed(jobs)]
    print(json.dumps({"items": pods}))
elif arguments[0] == "exec":
    name, script = arguments[2], arguments[-1]
    directory = f"{home}/{name}"
    os.makedirs(directory, exist_ok=True)
    shell = subprocess.Popen(["sh", "-c", script.replace("/tmp", directory)], stdin=subprocess.PIPE, text=True)

    def forward():
        """Passes the input on, as long as the shell reads it."""
        try:
            for line in sys.stdin:
                shell.stdin.write(line.replace("/volume/", f"{directory}/"))
                shell.stdin.flush()
            shell.stdin.close()
        except BrokenPipeError:
            pass

    threading.Thread(target=forward, daemon=True).start()
    # Without waiting for the end of the input.
    os._exit(shell.wait())
elif arguments[0] == "delete":
    kind = {"jobs": "Job", "persistentvolumeclaims": "PersistentVolumeClaim"}[arguments[1]]
    store([item for item in load() if item["kind"] != kind or not is_selected(item)])
else:
    sys.exit(f"unknown command {arguments}")
