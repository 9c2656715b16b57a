"""environment.py on recorded outputs and pretended programs."""
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import environment


class EnvironmentTest(unittest.TestCase):
    def test_the_newest_library_of_the_first_folder_that_has_one(self):
        with tempfile.TemporaryDirectory() as root:
            for name in ("a/libx.so", "b/libx.so.9", "b/libx.so.12", "b/libx.so.12.1.0", "c/libx.so.13"):
                path = Path(root, name)
                path.parent.mkdir(exist_ok=True)
                path.touch()
            folders = [f"{root}/{folder}" for folder in "abc"]
            self.assertEqual(environment.find_library("libx", folders), f"{root}/b/libx.so.12")
            self.assertIsNone(environment.find_library("liby", folders))

    def test_a_driver_is_too_old_if_its_major_version_is_lower_than_the_builds(self):
        def old(driver, backend="yes, toolkit 13.1"):
            return environment.old_driver({"driver_cuda": driver, "cuda_backend": backend})

        self.assertEqual(old("12.8"), "driver of CUDA 12.8 too old for CUDA 13.1")
        self.assertEqual([old("13.0"), old("14.0"), old("12.8", "no"), old("")], ["", "", "", ""])
        self.assertEqual(environment.old_driver({}), "")

    def test_the_toolkit_of_a_build_is_its_compilers(self):
        with tempfile.TemporaryDirectory() as root:
            self.assertIsNone(environment.compilers_toolkit(root))
            path = Path(root, "CMakeFiles/3.25.1/CMakeCUDACompiler.cmake")
            path.parent.mkdir(parents=True)
            path.write_text('set(CMAKE_CUDA_HOST_COMPILER_VERSION "12.2")\nset(CMAKE_CUDA_COMPILER_VERSION "13.0.88")\n')
            self.assertEqual(environment.compilers_toolkit(root), "13.0")

    def asked(self, script):
        """What nvidia_smi says of three fields and how often it asked, with a program that pretends."""
        with tempfile.TemporaryDirectory() as root:
            program = Path(root, "nvidia-smi")
            program.write_text(f"#!/bin/sh\necho >>{root}/calls\n{script}\n")
            program.chmod(0o755)
            with mock.patch.dict("os.environ", PATH=f"{root}:/usr/bin:/bin"):
                return list(environment.nvidia_smi(("driver_version", "name", "new.field"))), len(Path(root, "calls").read_text())

    def test_nvidia_smi_is_asked_once_for_all(self):
        self.assertEqual(self.asked("echo '580.1, NVIDIA H200, 7 W'; echo '580.1, another, 8 W'"),
                         ([("driver", "580.1"), ("gpu name", "NVIDIA H200"), ("gpu new.field", "7 W")], 1))

    def test_a_field_that_it_does_not_know_costs_only_itself(self):
        script = "case $1 in *new.field*) echo 'Field \"new.field\" is not a valid field to query.'; exit 2 ;; *=name) echo X ;; *) echo 470 ;; esac"
        self.assertEqual(self.asked(script), ([("driver", "470"), ("gpu name", "X")], 4))
