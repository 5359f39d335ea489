#!/usr/bin/env python3
"""Checks who may include what, that no name is defined twice, that folders stay small and have
their namespaces, and who may read the wall clock.

usage: check.py REPOSITORY [--targets FILE]

FILE is the link graph that CMake writes: one target a line, then what it
links. Prints one line per violation and exits with 1 if there is any.
"""

import argparse
import pathlib
import re
import sys

TOP_LEVEL = {
    "CMakeLists.txt", "CMakePresets.json", "LICENSE", "NOTICE", "README.md",
    "client", "db", "deploy", "proto", "server", "tests",
}  # fmt: skip
SOURCE_FOLDERS = ("client", "db", "deploy", "proto", "server", "tests")

TUNER_FOLDERS = ["server/" + room for room in
               ("commit", "decision", "devices", "jobs", "lookup", "release", "tuning")]  # fmt: skip

# What the other folders of the model are built on.
MODEL_FLOOR = [f"proto/model/{name}.h" for name in ("enums", "environment", "text", "violation")]

# Folders of ours that a folder may include beside itself; the longest prefix
# decides. A path's children go with it.
MAY_INCLUDE = {
    "proto/base": [],
    "proto/model": ["proto/base", "proto/convtune/v1"],
    "proto/model/problem": ["proto/base", "proto/convtune/v1", *MODEL_FLOOR],
    "proto/model/tuning": ["proto/base", "proto/convtune/v1", *MODEL_FLOOR, "proto/model/problem"],
    "proto/model/release": ["proto/base", *MODEL_FLOOR, "proto/model/tuning"],
    "proto/monitoring": ["proto/base", "proto/model/text.h"],
    "proto": ["proto"],
    "db": ["proto"],
    "db/bundle": ["proto"],
    "db/snapshot": ["proto"],
    "db/sqlite": ["proto"],
    "db/store": ["proto", "db/bundle", "db/sqlite", "db/tuning_store.h"],
    "db/postgres": ["proto"],
    "db/fleet": ["proto", "db/bundle", "db/postgres", "db/tuning_store.h", "db/sqlite/database_file.h"],
    # The tuner's folders, lowest first.
    "server/decision": ["proto"],
    "server/jobs": ["proto"],
    "server/tuning": ["proto", "server/decision", "server/jobs"],
    "server/lookup": ["proto", "db", "server/decision", "server/jobs"],
    "server/commit": ["proto", "db", "server/decision", "server/lookup"],
    "server/devices": ["proto", "server/commit", "server/decision", "server/jobs", "server/tuning"],
    "server/release": ["proto", "db", "server/commit", "server/decision", "server/lookup"],
    "server/tuner": ["proto", "db", *TUNER_FOLDERS],
    "server/worker": ["proto"],
    "server/worker/timing": ["proto", "server/worker/backend.h"],
    "server/worker/cudnn": ["proto", "server/worker/backend.h"],
    "server/worker/device": ["proto", "server/worker/backend.h", "server/worker/timing", "server/worker/cudnn"],
    "server/worker/search": ["proto", "server/worker/backend.h", "server/worker/cudnn", "server/worker/device"],
    "server/worker/verify": ["proto", "server/worker/backend.h", "server/worker/timing", "server/worker/cudnn",
                             "server/worker/device"],
    "server/metrics": ["server/tuner", *TUNER_FOLDERS, "server/rpc", "db", "proto"],
    "server/rpc/messages": ["server/tuner", *TUNER_FOLDERS, "db", "proto"],
    "server/rpc/http2": ["server/rpc/messages", "proto"],
    "server/rpc/services": ["server/rpc/http2", "server/rpc/messages", "server/tuner", *TUNER_FOLDERS, "db", "proto"],
    "server/rpc": ["server/tuner", *TUNER_FOLDERS, "db", "proto"],
    "server/convtuned": ["server/rpc", "server/metrics", "server/tuner", *TUNER_FOLDERS, "db", "proto"],
    "client/cpp": ["proto", "db/snapshot"],
    "client/report": ["proto"],
    "client/cli/output": ["proto"],
    "client/cli/app": ["proto", "client/cpp", "client/cli/output"],
    "client/cli/input": ["proto", "client/cli/output", "client/cli/app"],
    "client/cli/calls": ["proto", "client/cpp", "client/cli/output", "client/cli/app", "client/cli/input"],
    "client/cli/commands": ["proto", "db/bundle", "db/snapshot", "client/cpp", "client/report", "client/cli/output",
                            "client/cli/app", "client/cli/input", "client/cli/calls"],
    "client/cli": [],  # the program, above its folders
    "client/fleet": ["proto", "db", "client/cpp", "client/report", "client/cli"],
    "client/python": ["proto", "db/snapshot", "client/cpp"],
    # Without libstdc++: freestanding headers alone.
    "client/preload": ["db/snapshot", "proto/model/byte_size.h", "proto/model/problem/tensor_rules.h",
                       "proto/model/tuning/note_rules.h"],
    "deploy/examples": ["proto", "client/cpp"],
}

# Libraries, and the paths that may include them. A unit test may include what
# the folder that it mirrors may.
FENCED = [
    ("SQLite", r"sqlite3(ext)?\.h", [r"db/(sqlite|store)/[^/]+\.cc"]),
    ("spdlog", r"(spdlog|fmt)/.*", [r"proto/monitoring/.*", r"tests/unit/convtuned/logging_test\.cc"]),
    ("the log", r"proto/monitoring/log\.h",
     [r"proto/monitoring/.*", r"server/(commit|convtuned|devices|lookup|release)/.*",
      r"server/rpc/(http2/|services/)?[^/]+", r"client/fleet/.*", r"tests/bench/.*"]),
    ("the metrics", r"proto/monitoring/(metrics_server|family_builder)\.h",
     [r"proto/monitoring/.*", r"server/(convtuned|metrics)/.*", r"client/fleet/.*"]),
    ("libpq", r"(postgresql/)?libpq-fe\.h", [r"db/postgres/[^/]+\.cc"]),
    ("prometheus-cpp", r"prometheus/.*", [r"(proto/monitoring|server/metrics)/.*"]),
    (
        "CUDA and cuDNN",
        r"(cuda|cudnn|cublas|nvrtc|nvml|cupti)\w*\.h|(cuda|cub|thrust|nv)/.*|driver_types\.h|library_types\.h",
        [r"server/worker/.*", r"client/preload/.*", r"deploy/examples/.*", r"tests/(gpu|programs|bench|simgpu)/.*",
         r"tests/fakes/fake_cudnn\.cc"],
    ),
    (
        "gRPC",
        r"(grpcpp|grpc|grpc\+\+)/.*|.*\.grpc\.pb\.h",
        [r"server/(rpc|convtuned)/.*", r"client/(cpp|cli|fleet)/.*",
         r"tests/(integration|fakes|bench|fuzz|gpu)/.*"],
    ),
]  # fmt: skip

# tests/unit/<part> mirrors this folder.
MIRRORS = {
    "model": "proto/model", "base": "proto/base", "convert": "proto/convert", "db": "db",
    "commit": "server/commit", "decision": "server/decision", "devices": "server/devices", "jobs": "server/jobs",
    "lookup": "server/lookup", "release": "server/release", "worker_client": "proto/worker_client",
    "tuner": "server/tuner", "worker": "server/worker", "rpc": "server/rpc", "report": "client/report",
    "fleet": "client/fleet", "convtuned": "server/convtuned", "metrics": "server/metrics", "cli": "client/cli", "cpp": "client/cpp",
    "preload": "client/preload", "simgpu": "tests/simgpu",
}  # fmt: skip

CLOCKS = "proto/base/clock.h"
WALL_CLOCK = re.compile(r"\babsl::Now\b|\bsystem_clock\b|\bgettimeofday\b|\bCLOCK_REALTIME\b")

MOST_FILES = 25  # of code, in one folder of the product

# The namespace of a folder, or of a file: that of the longest prefix here, then the rest of the folder's path.
NAMESPACES = {
    "db": "convtune::db",
    "db/snapshot": "convtune::snapshot",
    "server": "convtune",
    "client": "convtune",
    "client/cpp": "convtune::client",
    "client/cpp/include/convtune": "convtune::client",
}

CODE = {".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"}
INCLUDE = re.compile(r'^\s*#\s*include(?:_next)?\s*(?:"([^"]+)"|<([^>]+)>)')


def below(path, folder):
    return path == folder or path.startswith(folder + "/")


def longest_prefix(path, folders):
    return max((f for f in folders if below(path, f)), key=len, default=None)


def mirrored(path):
    """The path in the sources that a unit test stands for, else the path."""
    parts = path.split("/")
    if parts[:2] == ["tests", "unit"] and len(parts) > 3 and parts[2] in MIRRORS:
        return "/".join([MIRRORS[parts[2]], *parts[3:]])
    return path


def check_include(path, included):
    """Why `path` may not include it, or None."""
    for name, headers, allowed in FENCED:
        if re.fullmatch(headers, included):
            if not any(re.fullmatch(a, p) for a in allowed for p in (path, mirrored(path))):
                return f"{name} is not for this folder: {included}"
            return None
    target = f"proto/{included}" if included.startswith("convtune/") else included
    if target.split("/")[0] not in SOURCE_FOLDERS:
        return None
    if below(path, "tests"):
        return None
    folder = longest_prefix(path, MAY_INCLUDE)
    if folder is None:
        return f"{path.rsplit('/', 1)[0]}/ is not in the list of folders"
    own = longest_prefix(target, MAY_INCLUDE)
    if own == folder or longest_prefix(target, MAY_INCLUDE[folder]):
        return None
    # A folder sees its own subfolders.
    if below(target, folder):
        return None
    may = ", ".join(m + "/" for m in MAY_INCLUDE[folder]) or "nothing of ours"
    return f"{folder}/ may include {may} only: {included}"


def check_top_level(root):
    for entry in sorted(root.iterdir()):
        name = entry.name
        # The second are what our commands make here; .gitignore has them too.
        made = re.fullmatch(r"build(-.*)?|site|report-demonstration|compile_commands\.json", name)
        if not (name.startswith(".") or name in TOP_LEVEL or made):
            yield f"{name}: not one of the fixed entries of the top level"


def check_file(root, file):
    if file.suffix not in CODE:
        return
    path = file.relative_to(root).as_posix()
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        reason = match and check_include(path, match[1] or match[2])
        if reason:
            yield f"{path}:{number}: {reason}"


def check_files(root):
    for folder in SOURCE_FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            parts = file.relative_to(root).parts
            if file.is_file() and not any(p.startswith(".") or p == "__pycache__" for p in parts):
                yield from check_file(root, file)


NAMESPACE = re.compile(r"^namespace ([\w:]*)\s*\{$")
NAMESPACE_END = re.compile(r"^\}  // namespace")
# clang-format indents what is inside a class and nothing inside a namespace.
DEFINITION = re.compile(r"^(?:class|struct|union|enum class|enum struct|enum) (?:\[\[\w+\]\] )?(\w+)\b(?!::)(?!.*;\s*(?://.*)?$)")


FORWARD_DECLARATION = re.compile(r"^(?:class|struct|union|enum class) \w+(?: : \w+)?;")
# Of these a line says nothing about a namespace: blank, a comment, the preprocessor, a brace.
NO_CODE = re.compile(r"^(?:\s|$|//|/\*|#|[{}])")


def namespace_lines(text):
    """The lines of a file that open and close no namespace, each with the names of those around it ("" is anonymous)."""
    spaces = []
    for line in text.splitlines():
        opened = NAMESPACE.match(line)
        if opened:
            spaces.append(opened[1])
        elif NAMESPACE_END.match(line) and spaces:
            spaces.pop()
        else:
            yield list(spaces), line


def definitions(text):
    """Names of the types that a file defines, with their namespaces; what no other file can see is left out."""
    for spaces, line in namespace_lines(text):
        defined = "" not in spaces and DEFINITION.match(line)
        if defined:
            yield "::".join([*spaces, defined[1]])


def code_files(root):
    """Paths and texts of the product's sources."""
    for top in ("client", "db", "deploy", "proto", "server"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix in CODE and file.is_file():
                yield file.relative_to(root).as_posix(), file.read_text(encoding="utf-8", errors="replace")


def check_names(root):
    """A name that two files define is one type to the linker: undefined behaviour where they differ."""
    seen = {}
    for path, text in code_files(root):
        for name in definitions(text):
            first = seen.setdefault(name, path)
            if first != path:
                yield f"{path}: defines {name}, as {first} does"


def namespace_of(path):
    """The namespace that a file's code is in."""
    if below(path, "proto"):  # values and rules that all programs share
        return "convtune"
    prefix = longest_prefix(path, NAMESPACES)
    return "::".join([NAMESPACES[prefix], *path[len(prefix) :].split("/")[1:-1]])


def check_namespaces(root):
    """A folder is a concept with its own namespace, which all its files open. They may open others' for a forward
    declaration, and those of the folder's own subfolders for what these define."""
    files = {path: text for path, text in code_files(root) if not below(path, "deploy")}
    of_folders = {namespace_of(path) for path in files}
    for path, text in files.items():
        own, has_own, elsewhere = namespace_of(path), False, None
        for spaces, line in namespace_lines(text):
            space = "::".join(filter(None, spaces))
            if not space.startswith("convtune") or NO_CODE.match(line) or FORWARD_DECLARATION.match(line):
                continue
            if space == own or (space.startswith(own + "::") and space not in of_folders):
                has_own = True
            elif path.startswith("proto/") or not space.startswith(own + "::"):
                yield f"{path}: has code in {space}, not in its folder's namespace {own}: {line}"
                break
            else:
                elsewhere = space
        else:
            if elsewhere and not has_own:
                yield f"{path}: has code in {elsewhere} alone, not in its folder's namespace {own}"


def check_folder_sizes(root):
    """A folder is a concept; one with more files than a reader takes in at once is several."""
    for top in ("client", "db", "proto", "server"):
        for folder in sorted({file.parent for file in (root / top).rglob("*") if file.suffix in CODE}):
            count = sum(file.suffix in CODE for file in folder.iterdir())
            if count > MOST_FILES:
                yield f"{folder.relative_to(root).as_posix()}/: has {count} source files, at most {MOST_FILES} are allowed"


def check_clocks(root):
    """The wall clock may be set at any moment. A Clock tells it, for what people read, store or ask for by it; every
    duration and deadline is of SteadyTimes."""
    for path, text in code_files(root):
        for number, line in enumerate(text.splitlines(), 1):
            wall = WALL_CLOCK.search(line)
            if wall and path != CLOCKS:
                yield f"{path}:{number}: {wall[0]} is for {CLOCKS}: a SteadyTime, or a Clock for what people read or store"


def read_targets(text):
    """Target -> what it links, of the targets that are in the text."""
    graph = {}
    for line in text.splitlines():
        name, _, links = line.partition(" ")
        graph[name] = set(re.findall(r"(?:\w|::|[.+-])+", links))
    return {name: sorted(links & graph.keys() - {name}) for name, links in graph.items()}


def find_cycle(graph):
    """One cycle as a list that ends where it began, or None."""
    done, path = set(), []

    def visit(node):
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return None
        path.append(node)
        for link in graph[node]:
            cycle = visit(link)
            if cycle:
                return cycle
        path.pop()
        done.add(node)
        return None

    for node in sorted(graph):
        cycle = visit(node)
        if cycle:
            return cycle
    return None


def check_targets(file):
    graph = read_targets(file.read_text())
    if not graph:
        yield f"{file}: names no target"
    cycle = find_cycle(graph)
    if cycle:
        yield "cycle between CMake targets: " + " -> ".join(cycle)


def check(root, targets=None):
    root = pathlib.Path(root)
    found = [*check_top_level(root), *check_files(root), *check_names(root),
             *check_namespaces(root), *check_folder_sizes(root), *check_clocks(root)]
    if targets:
        found += check_targets(pathlib.Path(targets))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository")
    parser.add_argument("--targets")
    args = parser.parse_args()
    found = check(args.repository, args.targets)
    print("\n".join(found) if found else "the rules hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
