"""Plants violations in a scratch tree and sees each one reported."""

import pathlib
import tempfile
import unittest

import check

CLEAN = {
    "CMakeLists.txt": "project(x)\n",
    "README.md": "x\n",
    ".gitignore": "build/\n",
    "proto/base/a.h": "#include <string>\n",
    "proto/model/m.h": '#include "absl/status/status.h"\n#include "proto/base/a.h"\n',
    "db/sqlite/store.cc": '#include <sqlite3.h>\n#include "proto/model/m.h"\n',
    "db/bundle/b.h": "",
    "db/snapshot/s.h": "",
    "server/tuner/t.h": '#include "db/store.h"\n#include "proto/model/m.h"\n',
    "server/worker/w.cc": '#include <cudnn.h>\n#include "convtune/worker/worker.pb.h"\n',
    "server/rpc/r.cc": '#include <grpcpp/grpcpp.h>\n#include "server/tuner/t.h"\n',
    "server/convtuned/main.cc": '#include "server/rpc/r.h"\n',
    "client/cpp/c.cc": '#include "convtune/v1/tuning_service.grpc.pb.h"\n',
    "client/cli/app/i.cc": '#include "client/cpp/c.h"\n',
    "client/preload/p.c": '#include <cudnn.h>\n#include "client/preload/s.h"\n#include "db/snapshot/s.h"\n',
    "tests/unit/db/sqlite/t.cc": '#include <sqlite3.h>\n#include "db/store.h"\n',
    "tests/gpu/g.cc": "#include <cuda_runtime.h>\n",
}


class IncludeRulesTest(unittest.TestCase):
    def reported(self, files=(), targets=None):
        with tempfile.TemporaryDirectory() as scratch:
            root = pathlib.Path(scratch)
            for name, text in {**CLEAN, **dict(files)}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            graph = None
            if targets is not None:
                graph = root / ".targets"
                graph.write_text(targets)
            return check.check(root, graph)

    def assert_one(self, files, *parts, targets=None):
        found = self.reported(files, targets)
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])

    def test_a_clean_tree_has_no_violation(self):
        self.assertEqual(self.reported(targets="a b c\nb c\nc absl::status\n"), [])

    def test_a_folder_has_at_most_25_files(self):
        files = {f"server/jobs/{i}.h": "" for i in range(25)}
        self.assertEqual(self.reported(files), [])
        self.assert_one({**files, "server/jobs/x.cc": ""}, "server/jobs/", "has 26 source files")

    def test_the_wall_clock_is_for_clocks(self):
        self.assertEqual(self.reported({"proto/base/clock.h": "absl::Now();\n", "tests/unit/db/c.cc": "absl::Now();\n"}), [])
        for use in ("const absl::Time t = absl::Now();", "Take(&absl::Now);", "std::chrono::system_clock::now();"):
            self.assert_one({"server/jobs/q.cc": f"\n{use}\n"}, "server/jobs/q.cc:2: ", " is for proto/base/clock.h")

    def test_a_folder_has_its_own_namespace(self):
        def of(namespace, body="class X {\n};"):
            return f"namespace {namespace} {{\n{body}\n}}  // namespace {namespace}\n"

        own = {
            "server/jobs/x.h": "convtune::jobs", "server/rpc/http2/x.h": "convtune::rpc::http2",
            "client/cli/commands/ban/x.h": "convtune::cli::commands::ban", "client/cli/x.h": "convtune::cli",
            "client/cpp/x.h": "convtune::client", "proto/model/tuning/x.h": "convtune", "db/bundle/x.h": "convtune::db::bundle",
            "db/snapshot/x.h": "convtune::snapshot", "client/cpp/include/convtune/x.h": "convtune::client",
        }  # fmt: skip
        for path, namespace in own.items():
            self.assertEqual(self.reported({path: of(namespace)}), [])
            self.assertEqual(self.reported({path: of(namespace + "::internal")}), [])
            self.assertEqual(self.reported({path: of("convtune::other", "class Y;") + of(namespace)}), [])
            if namespace != "convtune":
                self.assert_one({path: of("convtune::other", "int X();") + of(namespace)}, path, "code in convtune::other", namespace)

    def test_a_folder_declares_what_its_subfolders_define(self):
        below = {"db/bundle/y.h": "namespace convtune::db::bundle {\nint X();\n}  // namespace convtune::db::bundle\n"}
        text = "namespace convtune::db {\nint Z();\nnamespace bundle {\nint X();\n}  // namespace bundle\n}  // namespace convtune::db\n"
        self.assertEqual(self.reported({**below, "db/x.h": text}), [])
        self.assert_one({**below, "db/x.h": below["db/bundle/y.h"]}, "db/x.h", "convtune::db::bundle alone")
        shared = {"server/jobs/x.h": "namespace convtune::jobs {\nint X();\n}  // namespace convtune::jobs\n"}
        self.assert_one({**shared, "proto/model/x.h": shared["server/jobs/x.h"]}, "proto/model/x.h", "convtune::jobs")

    def test_a_library_outside_its_folders(self):
        for path, header, name in (
            ("server/tuner/x.cc", "<sqlite3.h>", "SQLite"),
            ("db/x.h", "<sqlite3.h>", "SQLite"),
            ("db/bundle/x.cc", '"sqlite3.h"', "SQLite"),
            ("client/fleet/x.cc", "<libpq-fe.h>", "libpq"),
            *(("server/tuner/x.cc", f"<{h}.h>", "CUDA") for h in ("cudnn", "cudnn_graph", "cuda_runtime_api", "cuda", "nvrtc", "library_types")),
            ("tests/unit/tuner/x.cc", "<cudnn.h>", "CUDA"),
            ("server/tuner/x.cc", "<grpcpp/server.h>", "gRPC"),
            ("db/x.cc", '"convtune/v1/tuning_service.grpc.pb.h"', "gRPC"),
        ):
            self.assert_one({path: f"\n#include {header}\n"}, f"{path}:2", name, header[1:-1])

    def test_client_and_db_never_include_server(self):
        for path in ("client/cli/app/x.cc", "client/cpp/x.cc", "client/preload/x.c", "db/x.cc"):
            self.assert_one({path: '#include "server/tuner/t.h"\n'}, f"{path}:1", "server/tuner/t.h")

    def test_each_folder_keeps_to_its_list(self):
        for path, include in (
            ("proto/base/x.h", "proto/model/m.h"),
            ("proto/base/x.h", "convtune/v1/problem.pb.h"),
            ("proto/model/problem/x.h", "proto/model/tuning/t.h"),
            ("db/bundle/x.h", "db/store.h"),
            ("db/bundle/x.h", "db/snapshot/s.h"),
            ("server/tuner/x.h", "server/worker/w.h"),
            ("server/worker/x.h", "db/store.h"),
            ("server/rpc/x.h", "server/worker/w.h"),
            ("server/rpc/messages/x.h", "server/rpc/http2/h.h"),
            ("server/rpc/http2/x.h", "server/rpc/services/s.h"),
            ("server/rpc/services/x.h", "server/rpc/server.h"),
            ("client/cpp/x.h", "db/store.h"),
            ("client/cli/output/x.h", "client/cli/app/a.h"),
            ("client/cli/app/x.h", "client/cli/input/i.h"),
            ("client/cli/input/x.h", "client/cli/calls/c.h"),
            ("client/cli/calls/x.h", "client/cli/commands/run/r.h"),
            ("client/preload/x.h", "proto/model/m.h"),
        ):
            self.assert_one({path: f'#include "{include}"\n'}, f"{path}:1", include)

    def test_a_folder_that_nobody_listed(self):
        self.assert_one({"server/new/x.h": '#include "proto/base/a.h"\n'}, "server/new/", "list of folders")

    def test_a_folder_of_the_worker_includes_the_root_s_interface_alone(self):
        self.assertEqual(self.reported({"server/worker/timing/x.h": '#include "server/worker/backend.h"\n'}), [])
        self.assert_one({"server/worker/timing/x.h": '#include "server/worker/session.h"\n'}, "server/worker/timing/x.h:1", "session.h")

    def test_a_name_that_two_files_define(self):
        text = "namespace convtune::rpc {\nstruct Verdict {\n  int a;\n};\n}  // namespace convtune::rpc\n"
        self.assert_one({"server/rpc/x.cc": text, "server/rpc/y.h": text}, "server/rpc/y.h", "convtune::rpc::Verdict", "server/rpc/x.cc")

    def test_a_name_that_two_files_may_define(self):
        forward = "namespace convtune::rpc {\nstruct Verdict;\n}  // namespace convtune::rpc\n"
        own = "namespace convtune::rpc {\nnamespace {\nstruct Verdict {\n};\n}  // namespace\nstruct Owner::Verdict {\n};\n}  // namespace convtune::rpc\n"
        other = "namespace convtune::db {\nstruct Verdict {\n};\n}  // namespace convtune::db\n"
        files = {"server/rpc/w.h": forward, "server/rpc/x.cc": own, "server/rpc/y.cc": own, "db/z.h": other}
        self.assertEqual(self.reported(files), [])

    def test_a_new_entry_of_the_top_level(self):
        self.assert_one({"scripts/x.sh": ""}, "scripts", "top level")

    def test_what_the_commands_make_at_the_top_level(self):
        self.assertEqual(self.reported({"site/index.html": "", "build-asan/x.h": ""}), [])

    def test_a_cycle_between_targets(self):
        self.assert_one({}, "b -> c -> b", targets="a b\nb c\nc $<LINK_ONLY:b>;z\n")

    def test_an_empty_link_graph(self):
        self.assert_one({}, "names no target", targets="")


if __name__ == "__main__":
    unittest.main()
