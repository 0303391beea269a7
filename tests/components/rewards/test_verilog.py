import pytest

from posttrain.components.rewards.verilog import Verilog, likeness, matching, renamed, statements
from posttrain.types import Task
from tests.components.rewards.judging import judge
from tests.components.rewards.programs import tier_for

REFERENCE = "module add(input [3:0] a, input [3:0] b, output [3:0] y); assign y = a + b; endmodule"
BENCH = """
module bench;
  reg [3:0] a, b; wire [3:0] y; integer i;
  add unit(a, b, y);
  initial begin
    for (i = 0; i < 4; i = i + 1) begin a = i; b = 3; #1 $display("%d", y); end
    $finish;
  end
endmodule
"""
TASK = Task(key="add", prompt="?", fields={"testbench": BENCH, "rows": ["3", "4", "5", "6"], "reference": REFERENCE})


@pytest.fixture
def reward() -> Verilog:
    made = Verilog(weakest=tier_for("iverilog", "vvp"))
    made.prepare()
    return made


def test_levels(reward: Verilog) -> None:
    own_name = REFERENCE.replace("add", "mine").replace("a + b", "b + a")
    assert judge(reward, own_name, TASK).value == 2.1
    wrong = judge(reward, REFERENCE.replace("a + b", "a - b"), TASK)
    assert wrong.status == "wrong" and 0.1 <= wrong.value <= 1.1
    assert judge(reward, "module add(input a; endmodule", TASK).value == 0.0
    assert judge(reward, "no module at all", TASK).value == 0.0


def test_ending_early_and_printing_rows_does_not_pass(reward: Verilog) -> None:
    for trick in ('initial begin $display("3"); $finish; end', 'initial $display("3");', "initial $finish;"):
        score = judge(reward, REFERENCE.replace("assign", f"{trick} assign", 1).replace("a + b", "0"), TASK)
        assert score.status == "wrong" and score.value <= 1.1


def test_a_simulation_without_end_is_stopped() -> None:
    from posttrain.sandbox import Limits

    reward = Verilog(weakest=tier_for("iverilog", "vvp"), limits=Limits(cpu_s=0.5, wall_s=120.0))
    score = judge(
        reward, REFERENCE.replace("assign", "reg r; initial begin r = 0; while (1) r = ~r; end assign", 1), TASK
    )
    assert score.status == "wrong" and "timeout_cpu" in score.explanation


def test_rows_by_hand() -> None:
    assert matching(b" 3\n4 // note\n0x5\n0b110\n", ["3", "4", "5", "6"]) == 1.0
    assert matching(b"3\n", ["3", "4", "5", "6"]) == 0.25
    assert matching(b"3\n4\n5\n6\n7\n", ["3", "4", "5", "6"]) == 0.8
    assert matching(b"", ["3"]) == 0.0 and matching(b"4\n3\n", ["3", "4"]) == 0.0


def test_likeness_by_hand() -> None:
    two = "a = 1; b = 2;"
    assert statements("a = 1; // x\n/* y; */ b  = 2;") == ["a=1", "b=2"]
    assert likeness(two, two) == 1.0
    # one of two statements shared: similarity 2*1/4, coverage 1/2, redundancy 1/2
    assert likeness("a = 1; c = 3;", two) == pytest.approx(0.7 * 0.5 + 0.3 * 0.5 - 0.2 * 0.5)
    assert likeness("", two) == 0.0  # 0 + 0 - 0.2 * 1, not below 0


def test_the_first_module_gets_the_name_that_is_wanted() -> None:
    assert renamed("module m; endmodule // m", "module n; endmodule") == "module n; endmodule // n"
    assert renamed("nothing", "module n;") == "nothing"


def test_the_share_of_rows_is_rewarded_where_that_is_asked_for() -> None:
    reward = Verilog(right=1.0, compiles=0.0, structure=0.0, partial=1.0, weakest=tier_for("iverilog", "vvp"))
    assert judge(reward, REFERENCE.replace("a + b", "3"), TASK).value == 0.25


@pytest.mark.parametrize(
    "call",
    [
        '$display("00 0");',
        "$finish;",
        "$fatal;",
        '$write("x");',
        "`define d $\nassign y = 1; // `d``display",
        "// $display",
    ],
)
def test_a_design_that_calls_system_tasks_is_refused_before_it_is_run(call: str) -> None:
    """In comments too: what is a comment is the compiler's decision. No sandbox is opened for it."""
    task = Task(key="t", prompt="?", fields={"testbench": "", "rows": ["1"]})
    score = judge(Verilog(), f"module top(output y); initial {call}\nendmodule", task)
    assert (score.value, score.status) == (0.0, "wrong") and "a design computes" in score.explanation


@pytest.mark.slow
def test_system_functions_that_compute_are_allowed(reward: Verilog) -> None:
    bench = 'module b; wire [3:0] y; top t(y); initial begin #1 $display("%d", y); end endmodule'
    task = Task(key="t", prompt="?", fields={"testbench": bench, "rows": ["4"]})
    assert judge(reward, "module top(output [3:0] y); assign y = $clog2(16); endmodule", task).status == "ok"
