"""Makes an environment in a folder beside its place and moves it there when it is whole."""

import lzma
import tarfile


def main(job):
    target = pathlib.Path(job["target"])
    if target.exists() and not job["force"]:
        raise Failure(f"{target} exists; --force makes it anew", usage=True)
    stage = target.with_name(f".{target.name}.{os.getpid()}")
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent, target.name)
    try:
        house, env = stage / "house", stage / "env"
        house.mkdir(parents=True)
        if job["from"]:
            items = unpack(pathlib.Path(job["from"]), job, house)
        else:
            items = gather(job["environment"], job["python"], house)
        make_env(env, job["link"])
        install(job["environment"]["name"], items, house, env)
        receipt = {"schema": 1, "environment": job["environment"]["name"], "kmark": job["kmark"]}
        receipt |= {"base": facts(), "linked": job["link"], "packages": items}
        (env / "receipt.json").write_text(json.dumps(receipt, indent=1) + "\n")
        move(env, target, stage)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return {"installed": str(target)}


def install(name, items, house, env):
    whole = [i for i in items if not i["only"]]
    say(f"{name}: installing")
    if whole:
        wanted = house / "wanted.txt"
        wanted.write_text("".join(f"{i['name']}=={i['version']}\n" for i in whole))
        command = pip() + ["--python", str(env / "bin/python"), "install", "-q", "--isolated", "--no-index"]
        command += ["--no-deps", "--disable-pip-version-check", "--no-warn-script-location", "--no-compile"]
        # Also where the linked interpreter has the same version, which it may lose tomorrow.
        command += ["--ignore-installed", f"--find-links={house}", "-r", str(wanted)]
        run(command, f"cannot install {name}")
    for item in items:
        if item["only"]:
            with zipfile.ZipFile(house / item["file"]) as part:
                part.extractall(site_packages(env))


def move(env, target, stage):
    """Scripts name their interpreter by its whole path, so the place comes first, then the move."""
    for script in (env / "bin").iterdir():
        if script.is_file() and not script.is_symlink():
            data = script.read_bytes()
            if str(env).encode() in data and b"\0" not in data:
                script.write_bytes(data.replace(str(env).encode(), str(target).encode()))
    if target.exists():
        target.rename(stage / "old")
    env.rename(target)


def unpack(bundle, job, house):
    """The environment's wheels out of a bundle, after every part has been held to its hash."""
    manifest = read_manifest(bundle)
    if manifest["python"] != job["python"]:
        line = f"{bundle} is for Python {manifest['python']}, {sys.executable} is {job['python']}"
        raise Failure(line, usage=True)
    items = []
    for package in job["environment"]["packages"] + job["environment"]["sources"]:
        candidates = [key(package, job["environment"]), f"{package['name']} {package['version']} built"]
        found = next((i for i in manifest["items"] if i["key"] in candidates), None)
        if found is None:
            line = f"{bundle} has no {package['name']} {package['version']}"
            raise Failure(f"{line}; it was made for {', '.join(manifest['environments'])}", usage=True)
        items.append(found)
    for archive in sorted({i["archive"] for i in items}):
        parts = manifest["archives"][archive]["parts"]
        for part in parts:
            check_part(bundle / part["file"], part)
        say(f"{job['environment']['name']}: unpacking {archive}")
        files = {i["file"] for i in items if i["archive"] == archive}
        extract(Chain([bundle / p["file"] for p in parts]), files, house)
    return items


def read_manifest(bundle):
    try:
        manifest = json.loads((bundle / "bundle.json").read_text())
        if manifest["schema"] == 1:
            return manifest
        raise Failure(f"{bundle}/bundle.json has schema {manifest['schema']}, this kmark reads 1", usage=True)
    except FileNotFoundError:
        raise Failure(f"{bundle} has no bundle.json", usage=True) from None
    except (ValueError, KeyError, TypeError, OSError) as broken:
        raise Failure(f"{bundle}/bundle.json is broken: {broken}", usage=True) from None


def check_part(path, part):
    if not path.is_file():
        raise Failure(f"{path} is missing", usage=True)
    if path.stat().st_size != part["bytes"]:
        line = f"{path} has {path.stat().st_size} bytes instead of {part['bytes']}"
        raise Failure(f"{line}; copy it again", usage=True)
    if sha256(path) != part["sha256"]:
        raise Failure(f"{path} is damaged: bundle.json has another sha256; copy it again", usage=True)


def extract(chain, wanted, house):
    with lzma.open(chain) as plain, tarfile.open(fileobj=plain, mode="r|") as tar:
        for member in tar:
            # Only plain files whose names we expect: an archive cannot write elsewhere.
            if member.isfile() and member.name in wanted:
                with open(house / member.name, "wb") as file:
                    shutil.copyfileobj(tar.extractfile(member), file)
                wanted = wanted - {member.name}
    if wanted:
        raise Failure(f"the bundle lacks {', '.join(sorted(wanted))}")


class Chain:
    """Files, read one after the other as one."""

    def __init__(self, paths):
        self.paths, self.file = list(paths), None

    def read(self, size=-1):
        while True:
            if self.file is None:
                if not self.paths:
                    return b""
                self.file = open(self.paths.pop(0), "rb")
            data = self.file.read(size)
            if data:
                return data
            self.file.close()
            self.file = None


answer(main)
