"""What make_bundle.py decides, without a build. Usage: make_bundle_test.py SOURCE_DIR"""
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(sys.argv.pop(1))
sys.path.insert(0, str(SOURCE / "launcher/package"))
import make_bundle  # noqa: E402


class MakeBundleTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)

    def stage(self):
        stage = make_bundle.Stage(self.root / "anyorder-bundle-1")
        stage.write("bin/hello", "hello\n", 0o755)
        stage.write("data/text.txt", "text\n")
        return stage

    def test_names_tell_what_stays_outside_and_what_comes_along(self):
        for pattern, outside, along in (
                (make_bundle.GLIBC, "libc.so.6 libm.so.6 libmvec.so.1 libpthread.so.0 ld-linux-x86-64.so.2 libnss_files.so.2",
                 "libstdc++.so.6 libgcc_s.so.1 libcrypto.so.3 libmpi.so.40 libcurl.so.4 libm4ri.so.1"),
                (make_bundle.TOOLKIT, "libcuda.so.1 libcublasLt.so.13 libnccl.so.2 libnvidia-ml.so.1", "libcudf.so.1"),
                (make_bundle.DROPPED_PLUGINS, "mca_btl_openib.so mca_pml_ucx.so mca_mtl_psm2.so mca_spml_ucx.so mca_schizo_flux.so",
                 "mca_btl_vader.so mca_btl_tcp.so mca_pml_ob1.so mca_plm_isolated.so mca_pmix_ext3x.so mca_plm_slurm.so")):
            for name in outside.split():
                self.assertTrue(pattern.search(name), name)
            for name in along.split():
                self.assertFalse(pattern.search(name), name)

    def test_the_same_tree_gives_the_same_bytes(self):
        archives = [self.root / folder / "anyorder-bundle-1.tar.xz" for folder in ("one", "two")]
        for archive in archives:
            archive.parent.mkdir()
            make_bundle.pack(self.stage(), archive)
        self.assertEqual(archives[0].read_bytes(), archives[1].read_bytes())
        with tarfile.open(archives[0]) as archive:
            self.assertEqual(archive.getmember("anyorder-bundle-1/bin/hello").mode, 0o755)

    def test_an_archive_that_is_too_large_is_refused_and_the_old_one_stays(self):
        archive = self.root / "anyorder-bundle-1.tar.xz"
        archive.write_text("the old one")
        stage = self.stage()
        stage.elfs = [stage.root / "bin/hello"]
        # Too large only with what is carried beside it.
        with self.assertRaisesRegex(make_bundle.BundleError, "limit.*bin/hello"):
            make_bundle.pack(stage, archive, beside=make_bundle.MAX_BYTES)
        self.assertEqual(archive.read_text(), "the old one")
        self.assertEqual(list(self.root.glob("*.partial")), [])

    def test_the_tracked_files_of_the_source_count(self):
        self.assertGreater(make_bundle.tracked_bytes(SOURCE), (SOURCE / "launcher/package/make_bundle.py").stat().st_size)
        self.assertLess(make_bundle.tracked_bytes(SOURCE), 16 * 2**20)

    def test_a_program_that_was_not_built_is_named(self):
        with self.assertRaisesRegex(make_bundle.BundleError, "anyorder-train does not exist; build it first"):
            self.stage().add_elf(self.root / "anyorder-train", "bin/anyorder-train")

    def test_a_file_that_would_take_libraries_of_this_machine_is_refused(self):
        stage = self.stage()
        stage.elfs = [stage.add(Path("/bin/bash"), "bin/bash", 0o755)]
        with self.assertRaisesRegex(make_bundle.BundleError, "bin/bash would take libtinfo"):
            stage.check()

    def test_prose_is_sentences_without_code_tables_and_headings(self):
        text = make_bundle.prose("# Heading\n\n```\ncode that is long enough to be taken for a paragraph of prose, if it were one\n```\n\n"
                                 "| a | table |\n\nThe first sentence of a paragraph that is [long](x.md) enough to be kept. The second\nsentence "
                                 "of it, with `code` in it.\n")
        self.assertEqual(text, "The first sentence of a paragraph that is long enough to be kept.\n"
                               "The second sentence of it, with code in it.")


if __name__ == "__main__":
    unittest.main()
