"""Packs environments for machines without a network: wheels uncompressed in a tar per environment, compressed
as a whole, cut into parts. What two environments share is packed once, with the first of them."""

import concurrent.futures
import lzma
import tarfile

BLOCK = 24 << 20  # a stream of its own, so that cores can share the work


def main(job):
    out = pathlib.Path(job["out"]).absolute()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Failure(f"--out {out} exists and is not empty", usage=True)
    stage = out.with_name(f".{out.name}.{os.getpid()}")
    out.parent.mkdir(parents=True, exist_ok=True)
    sweep(out.parent, out.name)
    try:
        (stage / "house").mkdir(parents=True)
        manifest = pack(job, stage)
        shutil.rmtree(stage / "house")
        (stage / "bundle.json").write_text(json.dumps(manifest, indent=1) + "\n")
        stage.rename(out)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return manifest


def pack(job, stage):
    manifest = {"schema": 1, "kmark": job["kmark"], "python": job["python"]}
    manifest |= {"environments": {}, "archives": {}, "items": []}
    for environment in job["environments"]:
        name, house = environment["name"], stage / "house" / environment["name"]
        house.mkdir()
        items = gather(environment, job["python"], house, skip={i["key"] for i in manifest["items"]})
        manifest["items"] += [i | {"archive": name} for i in items]
        file = stage / f"{name}.toml"
        file.write_text(environment["text"])
        manifest["environments"][name] = {"file": file.name, "sha256": sha256(file)}
        if items:
            parts = Parts(stage, name, job["split"])
            manifest["archives"][name] = {"parts": archive(items, house, parts, job["level"])}
        shutil.rmtree(house)
    return manifest


def archive(items, house, parts, level):
    for item in items:
        store(house / item["file"])
    total = sum((house / i["file"]).stat().st_size for i in items)
    told = lambda done: say(f"{parts.name}: packed {done >> 20} of {total >> 20} MiB")
    with Squeeze(parts, level, told) as squeeze, tarfile.open(fileobj=squeeze, mode="w|") as tar:
        for item in items:
            info = tarfile.TarInfo(item["file"])
            info.size = (house / item["file"]).stat().st_size
            with open(house / item["file"], "rb") as file:
                tar.addfile(info, file)
    return parts.close()


def store(wheel):
    """The same zip file without its compression, which would be in the way of a better one."""
    plain = wheel.with_name("plain.zip")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(plain, "w", zipfile.ZIP_STORED) as new:
        for info in old.infolist():
            data = old.read(info)
            info.compress_type = zipfile.ZIP_STORED
            new.writestr(info, data)
    plain.replace(wheel)


class Squeeze:
    """Takes bytes, compresses them in blocks side by side, hands them on in order."""

    def __init__(self, sink, level, told):
        # Most of what is packed is machine code, which a filter makes more alike.
        self.filters = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": level}]
        self.sink, self.buffer, self.waiting = sink, bytearray(), []
        self.told, self.done = told, 0
        self.workers = min(os.cpu_count() or 1, 8)
        self.pool = concurrent.futures.ThreadPoolExecutor(self.workers)

    def write(self, data):
        self.buffer += data
        while len(self.buffer) >= BLOCK:
            self.send(bytes(self.buffer[:BLOCK]))
            del self.buffer[:BLOCK]

    def send(self, block):
        self.waiting.append(self.pool.submit(lzma.compress, block, filters=self.filters))
        if len(self.waiting) > self.workers:
            self.sink.write(self.waiting.pop(0).result())
            self.done += BLOCK
            self.told(self.done)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.send(bytes(self.buffer))
            for block in self.waiting:
                self.sink.write(block.result())
        self.pool.shutdown(cancel_futures=True)


class Parts:
    """Files NAME.000, NAME.001, … of at most `split` bytes each, and their hashes."""

    def __init__(self, folder, name, split):
        self.folder, self.name, self.split = folder, name, split
        self.done, self.file, self.room = [], None, 0

    def write(self, data):
        while data:
            if self.room == 0:
                self.next()
            self.file.write(data[: self.room])
            taken = min(self.room, len(data))
            self.room -= taken
            data = data[taken:]

    def next(self):
        self.end()
        self.file = open(self.folder / f"{self.name}.{len(self.done):03}", "wb")
        self.room = self.split

    def end(self):
        if self.file:
            self.file.close()
            path = pathlib.Path(self.file.name)
            self.done.append({"file": path.name, "bytes": path.stat().st_size, "sha256": sha256(path)})
            say(f"{path.name}: {path.stat().st_size / 2**20:.1f} MiB")
            self.file = None

    def close(self):
        self.end()
        return self.done


answer(main)
