"""What the workers' test does: see workers_test.go."""
import os
import time


def work(job):
    name, action, argument = job.decode().split(" ")
    with open(os.environ["LOG"], "a") as log:
        log.write(name + "\n")
    while action == "wait" and not os.path.exists(argument):
        time.sleep(0.01)
    with open(os.environ["LOG"]) as log:
        runs = list(log).count(name + "\n")
    if action == "fail" and runs <= int(argument):
        raise RuntimeError(f"run {runs} of {name}")
