"""Every rule of doc_audit passes on a sound repository and fails on a fixture that breaks it; the real one passes."""

import inspect

import doc_audit
import pytest
from audit import tables
from audit.project import Project

from tests import ROOT
from tests.docs.mini import FILES, write_files


@pytest.fixture
def mini(tmp_path):
    write_files(tmp_path, FILES)
    tables.write(Project(tmp_path))
    return tmp_path


def findings_of(root, rule):
    return [str(finding) for finding in doc_audit.audit(Project(root), [rule])]


@pytest.mark.parametrize("rule", doc_audit.RULES)
def test_rule_passes_on_sound_repository(mini, rule):
    assert findings_of(mini, rule) == []


#: rule, file to change, old text, new text ("" for old: append), finding that must appear
BROKEN = [
    ("D01", "docs/guide.md", "", "\n[x](gone.md)\n", "docs/guide.md:26: D01 link gone.md: no such file"),
    ("D01", "README.md", "docs/index.md", "docs/index.md#nowhere", "README.md:3: D01 link docs/index.md#nowhere: no"),
    ("D01", "docs/guide.md", "", "\n[`code`](#nowhere)\n", "docs/guide.md:26: D01 link #nowhere"),
    ("D01", "docs/guide.md", "", "\n[two\nlines](gone.md)\n", "docs/guide.md:26: D01 link gone.md: no such file"),
    ("D02", "docs/index.md", ", [guide](guide.md)", "", "docs/guide.md:1: D02 not reachable"),
    ("D03", "docs/guide.md", "`nnk.ops`", "`nnk.opz`", "docs/guide.md:3: D03 nnk.opz does not exist"),
    ("D03", "docs/guide.md", "`nnk.ops`", "`nnk.ops.treble()`", "docs/guide.md:3: D03 nnk.ops.treble does not"),
    ("D03", "nnk/extra.py", "", '"""New."""\n', "docs/architecture.md:1: D03 no line about nnk.extra (extra.py)"),
    ("D04", "nnk/__init__.py", '["double"]', '["OPS", "double"]\nfrom nnk.ops import OPS',
     "docs/reference/api.md:1: D04 public name nnk.OPS is missing"),
    ("D04", "docs/reference/api.md", "`nnk.double`", "`nnk.treble`", "docs/reference/api.md:7: D04 nnk.treble is not"),
    ("D04", "nnk/ops.py", '    """Return twice x.', '    x\n    """Return twice x.',
     "nnk/__init__.py:1: D04 public name nnk.double has no docstring"),
    ("D05", "nnk/cli/__init__.py", "    return parser", '    commands.add_parser("new", help="x")\n    return parser',
     "docs/reference/cli.md:1: D05 no heading for the command `nnk new`"),
    ("D05", "docs/guide.md", "$ nnk info --json", "$ nnk info --yaml", "docs/guide.md:18: D05 `nnk info` has no optio"),
    ("D05", "docs/guide.md", "", "\nRun `nnk gone`.\n", "docs/guide.md:26: D05 there is no command `nnk gone`"),
    ("D05", "docs/reference/cli.md", "", "\n## `nnk gone`\n", "docs/reference/cli.md:1: D05 there is no command `nnk"),
    ("D05", "nnk/cli/__init__.py", 'help="Print the version."', 'help=""', "nnk/cli/__init__.py:1: D05 command `nnk i"),
    ("D06", "nnk/config.py", "NNK_DEVICE", "NNK_GPU", "docs/reference/settings.md:1: D06 no row for NNK_GPU"),
    ("D06", "setup.py", "", 'X = os.environ.get("NNK_BUILD_X")\n', "docs/reference/settings.md:1: D06 no row for NNK_"),
    ("D06", "docs/guide.md", "`NNK_DEVICE`", "`NNK_GONE`", "docs/guide.md:3: D06 nothing reads NNK_GONE"),
    ("D07", "docs/reference/errors.md", "└── SmallError", "SmallError", "D07 SmallError is drawn under nothing"),
    ("D07", "docs/reference/errors.md", "└── SmallError", "└── BigError", "D07 SmallError is not in the tree"),
    ("D07", "docs/reference/errors.md", "└── SmallError", "└── BigError", "D07 BigError is not an exception"),
    ("D07", "docs/reference/errors.md", "| `SmallError`", "| `Small`", "D07 no row for SmallError"),
    ("D08", "docs/guide.md", "nnk.double(2)", "nnk.double()", "docs/guide.md:6: D08 TypeError: double() missing"),
    ("D08", "docs/guide.md", "\n8\n", "\n9\n", "docs/guide.md:11: D08"),
    ("D08", "docs/guide.md", "mini ...", "maxi ...", "docs/guide.md:16: D08 `nnk info` prints 'mini 1.2.3'"),
    ("D08", "docs/guide.md", "$ nnk info --json", "$ nnk info --yaml", "docs/guide.md:16: D08 `nnk info --yaml` exits"),
    ("D08", "docs/guide.md", "$ nnk info --json", "$ rm x", "docs/guide.md:16: D08 `rm x`: a console block runs nnk"),
    ("D08", "docs/guide.md", "no-run: needs a network", "no-run:", "docs/guide.md:23: D08 no-run without a reason"),
    ("D08", "docs/guide.md", "python no-run: needs a network", "python", "docs/guide.md:23: D08 SystemExit: 1 (line 2"),
    ("D09", "CHANGELOG.md", "## [Unreleased]\n\n- Nothing.\n\n", "", "CHANGELOG.md:3: D09 the first section is not"),
    ("D09", "nnk/_version.py", "1.2.3", "1.3.0", "CHANGELOG.md:7: D09 the newest release is not 1.3.0"),
    ("D09", "docs/guide.md", "nnk 1.2.3", "nnk 1.0.0", "docs/guide.md:3: D09 quotes 1.0.0, nnk._version.__version__ i"),
    ("D10", "docs/numerics.md", "16 <!--", "17 <!--", "docs/numerics.md:9: D10 says 17, nnk.config.LIMIT is 16"),
    ("D10", "docs/numerics.md", "config.LIMIT", "config.LOST", "docs/numerics.md:9: D10 there is no constant nnk.conf"),
    ("D10", "docs/numerics.md", "LIMITS[inputs]", "LIMITS[x]", "docs/numerics.md:9: D10 there is no constant"),
    ("D10", "docs/numerics.md", "", "\n<!-- const: nnk.config.LIMIT -->\n", "docs/numerics.md:11: D10 a constant mark"),
    ("D11", "nnk/ops.py", 'name="add"', 'name="sub"', "docs/numerics.md:1: D11 no row for the op sub"),
    ("D11", "docs/numerics.md", "| 7 |", "| 8 |", "docs/numerics.md:7: D11 says code 8 for add, it is 7"),
    ("D11", "docs/numerics.md", "| `add` | 7", "| `add` | 7 | x |\n| `old` | 9", "docs/numerics.md:8: D11 there is no"),
    ("D12", "docs/architecture.md", "config → errors", "config → errors ops", "D12 config → ops is drawn but not allo"),
    ("D12", "docs/architecture.md", "config → errors", "config → (nothing)", "D12 config → errors is allowed but not"),
    ("D12", "docs/architecture.md", "ops    → (nothing)", "", "D12 ops is not drawn"),
    ("D12", "docs/architecture.md", "ops    →", "opz    →", "docs/architecture.md:21: D12 opz has no row in ALLOWED"),
    ("D12", "docs/architecture.md", "<!-- arrows -->", "", "docs/architecture.md:1: D12 no code block below"),
    ("D13", "docs/architecture.md", "├── ops.py", "├── opz.py", "docs/architecture.md:10: D13 nnk/opz.py is drawn but"),
    ("D13", "nnk/extra.py", "", "", "docs/architecture.md:6: D13 nnk/extra.py exists but is not drawn"),
    ("D13", "nnk/include/new.h", "", "", "docs/architecture.md:12: D13 nnk/include/new.h exists but is not drawn"),
    ("D14", "nnk/include/nnk_math.h", "", "float nn_log(float x) {\n}\n", "docs/numerics.md:1: D14 nn_log of nnk_math"),
    ("D14", "docs/numerics.md", "`nn_exp`", "`nn_exp`, `nn_gone`", "docs/numerics.md:9: D14 nnk_math.h has no functio"),
    ("D14", "nnk/include/nnk_abi.h", "", "int nnk_run(void);\n", "docs/c-abi.md:1: D14 the page about nnk_abi.h is"),
    ("D15", "nnk/config.py", '"Device."', '"The device."', "docs/reference/settings.md:3: D15 the table settings is"),
    ("D15", "docs/guide.md", "", "\n<!-- generated: moon -->\n", "docs/guide.md:26: D15 nothing generates moon"),
    ("D15", "docs/guide.md", "", "\n<!-- generated: ops -->\n", "docs/guide.md:26: D15 generated: ops has no <!-- end"),
    ("D16", "nnk/ops.py", "    SmallError\n", "    TinyError\n", "nnk/ops.py:14: D16 Raises names TinyError"),
]


@pytest.mark.parametrize(("rule", "name", "old", "new", "expected"), BROKEN)
def test_rule_fails_on_broken_repository(mini, rule, name, old, new, expected):
    path = mini / name
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    assert old in text
    path.write_text(text.replace(old, new, 1) if old else text + new, encoding="utf-8")
    findings = findings_of(mini, rule)
    assert any(expected in finding for finding in findings), findings


def test_every_rule_has_a_failing_fixture():
    assert {row[0] for row in BROKEN} == set(doc_audit.RULES)


def test_missing_index_is_found(mini):
    (mini / "docs/index.md").unlink()
    assert findings_of(mini, "D02") == ["docs/index.md:1: D02 the index is missing"]


@pytest.mark.parametrize(("rule", "name"), [("D04", "api"), ("D07", "errors")])
def test_missing_reference_page_is_found(mini, rule, name):
    (mini / f"docs/reference/{name}.md").unlink()
    assert findings_of(mini, rule)


def test_package_that_does_not_import_is_a_finding(mini):
    (mini / "nnk/ops.py").write_text("1 / 0\n", encoding="utf-8")
    findings = findings_of(mini, "D04")
    assert len(findings) == 1
    assert "ZeroDivisionError" in findings[0]


def test_rules_are_short_and_documented():
    for name, rule in doc_audit.RULES.items():
        assert len(inspect.getsourcelines(rule)[0]) <= 40, name
        assert (rule.__doc__ or "").startswith(f"{name}: "), name


def test_main_writes_tables_and_reports(mini, capsys):
    page = mini / "docs/reference/settings.md"
    page.write_text(page.read_text(encoding="utf-8").replace("Device.", "Old."), encoding="utf-8")
    assert doc_audit.main(["--root", str(mini), "--only", "D15"]) == 1
    assert "D15 the table settings is stale" in capsys.readouterr().out
    assert doc_audit.main(["--root", str(mini), "--write", "--fast"]) == 0
    assert "Device." in page.read_text(encoding="utf-8")


def test_fast_leaves_the_examples_out(mini, capsys):
    path = mini / "docs/guide.md"
    path.write_text(path.read_text(encoding="utf-8").replace("nnk.double(2)", "nnk.double()"), encoding="utf-8")
    assert doc_audit.main(["--root", str(mini), "--fast"]) == 0
    assert doc_audit.main(["--root", str(mini)]) == 1
    assert "D08" in capsys.readouterr().out


def test_repository_passes_every_rule():
    assert list(map(str, doc_audit.audit(Project(ROOT), doc_audit.RULES))) == []
