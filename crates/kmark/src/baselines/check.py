"""Looks at an environment from inside: versions, and whether each family's module can be imported."""

import importlib.metadata


def main(job):
    receipt = pathlib.Path(sys.prefix) / "receipt.json"
    parts = {p["name"]: p["version"] for p in json.loads(receipt.read_text())["packages"] if p["only"]}
    versions = {name: parts.get(name) or installed(name) for name in job["packages"]}
    seen = {}  # families that share a module and its variables share the attempt
    imports = {}
    for family in job["families"]:
        same = (family["module"], tuple(sorted(family["env"].items())))
        if same not in seen:
            say(f"{job['name']}: import {family['module']}")
            seen[same] = failed_import(family["module"], family["env"])
        imports[family["name"]] = seen[same]
    return {"facts": facts(), "versions": versions, "imports": imports}


def installed(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def failed_import(module, env):
    """None if it goes well, else why not. In a process of its own: a library may take its process with it."""
    try:
        done = attempt([sys.executable, "-c", f"import {module}"], os.environ | env, timeout=300)
    except subprocess.TimeoutExpired:
        return "no end after 300 s"
    return None if done.returncode == 0 else reason(done.stderr, done.returncode)


answer(main)
