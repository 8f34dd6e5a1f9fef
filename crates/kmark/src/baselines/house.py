"""The wheels of an environment, gathered in one folder: downloaded and held to their hashes, cut down to the
files that are wanted, built where there is only source. The folder is what is installed, and what a bundle is
made of."""

import fnmatch
import urllib.request
import venv
import zipfile

# pip knows a wheel by exactly the tags it is told.
PLATFORMS = [f"manylinux_2_{n}_x86_64" for n in range(35, 4, -1)]
PLATFORMS += [f"manylinux{year}_x86_64" for year in (2014, 2010, 1)] + ["linux_x86_64"]


def gather(environment, python, folder, skip=()):
    """Fills `folder`; returns its items. Those whose key is in `skip` are somewhere else already."""
    items, packages = [], environment["packages"]
    for source in environment["sources"]:
        missing = [tool for tool in source["needs"] if not find(tool, source["env"])]
        if missing:
            line = f"{source['name']} {source['version']} is built from source"
            raise Failure(f"{line} and needs {' and '.join(missing)}, not found here", usage=True)
    for number, package in enumerate(packages, 1):
        # A build needs its tools here, wherever else they are.
        if key(package, environment) in skip and not environment["sources"]:
            continue
        say(f"{environment['name']}: {number} of {len(packages)}: {package['name']} {package['version']}")
        wheel = download(package, python, folder)
        item = describe(package, wheel, key(package, environment))
        if package.get("only"):
            item |= {"file": pick(wheel, package, environment["name"]), "only": True}
            wheel.unlink()
        items.append(item)
    for source in environment["sources"]:
        items.append(build(source, environment, folder))
    return items


def describe(package, wheel, key):
    of = {"name": package["name"], "version": package["version"], "file": wheel.name, "sha256": sha256(wheel)}
    return of | {"only": False, "key": key}


def key(package, environment):
    """Equal for what two environments can share."""
    part = f" for {environment['name']}" if package.get("only") else ""
    return f"{package['name']} {package['version']}{part}"


def download(package, python, folder):
    """The one wheel of a package for a Python, held to its hash."""
    name = f"{package['name']} {package['version']}"
    into = folder / "download"
    into.mkdir()
    wanted = into / "wanted.txt"
    hashes = " ".join(f"--hash=sha256:{h}" for h in package["sha256"])
    wanted.write_text(f"{package['name']}=={package['version']} {hashes}\n")
    command = pip() + ["download", "-q", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    command += ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    command += [f"--platform={p}" for p in PLATFORMS] + ["-d", str(into), "-r", str(wanted)]
    run(command, f"cannot download {name} for Python {python}")
    (wheel,) = into.glob("*.whl")
    target = folder / wheel.name
    wheel.rename(target)
    shutil.rmtree(into)
    return target


def pick(wheel, package, environment):
    """A zip file of only the files that are wanted, where they belong; returns its name."""
    strip, count = package.get("strip", ""), 0
    name = f"{package['name']}-{package['version']}.{environment}.zip"
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(wheel.parent / name, "w") as part:
        for info in whole.infolist():
            if not info.is_dir() and any(fnmatch.fnmatch(info.filename, like) for like in package["only"]):
                data = whole.read(info)
                info.filename = info.filename.removeprefix(strip)
                part.writestr(info, data, zipfile.ZIP_DEFLATED, 1)
                count += 1
        for path, text in package.get("write", {}).items():
            part.writestr(path, text)
    if not count:
        raise Failure(f"{wheel.name} has no file like {' or '.join(package['only'])}")
    return name


def build(source, environment, folder):
    """A wheel from source, made in an environment of its own with the packages that are in the folder."""
    name = f"{source['name']} {source['version']}"
    work = folder / "build"
    work.mkdir()
    archive = work / source["url"].rsplit("/", 1)[1]
    say(f"{environment['name']}: source of {name}")
    with urllib.request.urlopen(source["url"]) as remote, open(archive, "wb") as file:
        shutil.copyfileobj(remote, file)
    if sha256(archive) != source["sha256"]:
        raise Failure(f"{source['url']} is not what is pinned: its sha256 is {sha256(archive)}")
    make_env(work / "env", link=True)
    wheels = [str(w) for w in folder.glob("*.whl")]
    python = str(work / "env/bin/python")
    if wheels:
        command = ["--python", python, "install", "-q", "--isolated", "--no-index", "--no-deps", "-I"]
        run(pip() + command + wheels, f"cannot prepare the build of {name}")
    say(f"{environment['name']}: building {name}; this takes long, and memory")
    command = ["--python", python, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(work)]
    env = source["env"] | dict(os.environ)
    env["PATH"] = f"{work}/env/bin:{os.environ.get('PATH', '')}"
    run(pip() + command + [str(archive)], f"cannot build {name}", env)
    (wheel,) = work.glob("*.whl")
    target = folder / wheel.name
    wheel.rename(target)
    shutil.rmtree(work)
    return describe(source, target, f"{name} built")


def find(tool, env):
    """A program on the path, or in the CUDA toolkit."""
    home = os.environ.get("CUDA_HOME") or env.get("CUDA_HOME", "")
    return shutil.which(tool) or shutil.which(f"{home}/bin/{tool}")


def make_env(path, link):
    """A virtual environment without pip; `link` lets it see what this interpreter has."""
    venv.EnvBuilder(system_site_packages=link, symlinks=True, with_pip=False).create(path)
    if link and sys.prefix != sys.base_prefix:
        # This interpreter is an environment itself, and venv looks only at the one beneath it.
        beneath = f"import site; site.addsitedir({str(site_packages(sys.prefix))!r})\n"
        (site_packages(path) / "kmark-beneath.pth").write_text(beneath)
