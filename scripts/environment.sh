#!/usr/bin/env bash
# Makes this project's virtual environments, or brings them up to date; a second run does nothing.
#
#   scripts/environment.sh airflow       .venv       for `make demo`, most tests and `make docs`
#   scripts/environment.sh kfp           .venv-kfp   Kubeflow Pipelines with its pins, and PyTorch for `make demo-kfp`
#   scripts/environment.sh kfp-oldest    .venv-kfp-oldest   the oldest supported Kubeflow Pipelines
#   scripts/environment.sh bench         .venv-bench the other contenders of `make bench`, and its plot
#   scripts/environment.sh airflow-version CONSTRAINTS FOLDER   one row of `make test-versions`
#   scripts/environment.sh release       .venv-release   what builds and lists a release's files, for `make release`
#   scripts/environment.sh wheel CONSTRAINTS FOLDER REQUIREMENT...   a fresh environment for a test of the built wheel
#   scripts/environment.sh beside-torch VERSION FOLDER REQUIREMENT...   libraries for a Python that has PyTorch, for pods
#   scripts/environment.sh page          build the Training page of Airflow; the word airflow does that, too, if npm is there
#   scripts/environment.sh constraints   compile constraints/*.txt anew from pyproject.toml
#
# Packages come from the registry that pip uses on this machine, in the versions of constraints/*.txt. uv, which installs
# them, comes from there too and is kept outside the tree; its cache makes a second clone a matter of seconds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON="${PYTHON:-python3}"
CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/ptjob-provider"
UV_VERSION="$(sed -n 's/^uv==//p' constraints/airflow.txt)"
UV="$CACHE/uv-$UV_VERSION/bin/uv"

say() { printf '%s\n' "$*" >&2; }

die() {
  say "$@"
  exit 1
}

# Pass pip's certificates and registries to uv, which does not read pip's configuration.
adopt_pip_settings() {
  pip_setting() { "$PYTHON" -m pip config get "global.$1" 2>/dev/null || true; }
  local index="${PIP_INDEX_URL:-$(pip_setting index-url)}" extra="${PIP_EXTRA_INDEX_URL:-$(pip_setting extra-index-url)}"
  local cert="${PIP_CERT:-$(pip_setting cert)}" links="${PIP_FIND_LINKS:-$(pip_setting find-links)}"
  [[ -z $index || -n ${UV_DEFAULT_INDEX:-} ]] || export UV_DEFAULT_INDEX="$index"
  [[ -z $extra || -n ${UV_INDEX:-} ]] || export UV_INDEX="$extra"
  [[ -z $links || -n ${UV_FIND_LINKS:-} ]] || export UV_FIND_LINKS="${links// /,}"
  [[ -z $cert || -n ${SSL_CERT_FILE:-} ]] || export SSL_CERT_FILE="$cert"
  export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-1}" UV_PYTHON_DOWNLOADS=never UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT:-180}"
  unset VIRTUAL_ENV
}

install_uv() {
  [[ ! -x $UV ]] || return 0
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "Python 3.11 or newer is needed; '$PYTHON' is $("$PYTHON" --version 2>&1). Name another one: make PYTHON=python3.12 …"
  say "── uv $UV_VERSION into $CACHE"
  local fresh="$CACHE/uv-$UV_VERSION.$$"
  "$PYTHON" -m venv "$fresh" || die "'$PYTHON -m venv' does not work; on Debian: apt-get install python3-venv"
  "$fresh/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
  rm -rf "$CACHE/uv-$UV_VERSION"
  mv "$fresh" "$CACHE/uv-$UV_VERSION" # uv is one program, so its folder can be renamed
}

# Show uv's progress bars at a terminal, and keep the list of two hundred packages out of a log file.
quietly() {
  if [[ -t 2 ]]; then "$@"; else "$@" 2>&1 | sed '/^ [+~-] /d' >&2; fi
}

# environment FOLDER CONSTRAINTS EXTRAS GROUP...
environment() {
  local folder="$1" constraints="$2" extras="$3" wanted
  shift 3
  wanted="$({
    pwd
    "$PYTHON" --version
    cat pyproject.toml "$constraints" ptjob_provider/__init__.py scripts/environment.sh
  } | sha256sum)"
  [[ ! -f $folder/made-of || $(<"$folder/made-of") != "$wanted" ]] || return 0
  adopt_pip_settings
  install_uv
  say "── $folder: ${extras:+$extras, }$*"
  [[ $extras != *demo* ]] || say "   the first time some gigabytes are downloaded: PyTorch brings its CUDA libraries"
  # An existing environment is updated in place; only another Python needs a new one.
  [[ "$("$folder/bin/python" --version 2>/dev/null)" == "$("$PYTHON" --version)" ]] ||
    "$UV" venv --quiet --clear --python "$PYTHON" "$folder"
  quietly "$UV" pip install --python "$folder/bin/python" --constraints "$constraints" \
    --build-constraints "$constraints" --editable ".${extras:+[$extras]}" "${@/#/--group=}"
  printf '%s' "$wanted" >"$folder/made-of"
}

# The Training page's files, with the exact versions of its package.json; npm uses its own registry.
page() {
  local folder=ptjob_provider/airflow/training_page wanted
  wanted="$(cat "$folder"/*.json "$folder"/*.mjs "$folder"/source/* | sha256sum)"
  [[ ! -f $folder/built/index.html || ! -f $folder/node_modules/made-of || $(<"$folder/node_modules/made-of") != "$wanted" ]] ||
    return 0
  command -v npm >/dev/null || die "npm is missing, so the Training page of Airflow is not built; on Debian: apt-get install npm"
  say "── the Training page"
  (
    cd "$folder" &&
      timeout 300 npm install --silent --no-package-lock --ignore-scripts --no-audit --no-fund &&
      npm run --silent build
  ) || die "npm did not build the Training page of Airflow: try \`make page\` again"
  printf '%s' "$wanted" >"$folder/node_modules/made-of"
}

# compile CONSTRAINTS EXTRAS GROUP...: the newest versions that fit together, within the limits on standard input
compile() {
  local target="$1" extras fresh
  read -ra extras <<<"$2"
  shift 2
  fresh="$(mktemp)"
  "$UV" pip compile --quiet --upgrade --python-version 3.11 --no-header --no-annotate --no-emit-index-url \
    --constraints - "${extras[@]/#/--extra=}" "${@/#/--group=}" pyproject.toml >"$fresh"
  { printf '# Versions that are tested together; compiled by `make constraints`.\n' && cat "$fresh"; } >"$target"
  rm -f "$fresh"
  say "── $target: $(grep -c == "$target") packages"
}

# The oldest kfp in pyproject.toml.
oldest_kfp() { sed -nE 's/^  "(kfp[a-z-]*)>=([0-9.]+).*/\1==\2/p' pyproject.toml; }

# wheel CONSTRAINTS FOLDER REQUIREMENT...: installs from uv's cache, which has everything once the environment of these
# constraints has been made; otherwise from a registry.
wheel() {
  local constraints="constraints/$1.txt" folder="$2"
  shift 2
  adopt_pip_settings
  install_uv
  "$UV" venv --quiet --python "$PYTHON" "$folder"
  local install=("$UV" pip install --quiet --python "$folder/bin/python" --constraints "$constraints")
  "${install[@]}" --offline "$@" 2>/dev/null || "${install[@]}" "$@"
}

# beside_torch VERSION FOLDER REQUIREMENT...: libraries without PyTorch and NumPy, for another Python that has both.
beside_torch() {
  local version="$1" folder="$2"
  shift 2
  adopt_pip_settings
  install_uv
  "$UV" pip install --quiet --target "$folder" --python-version "$version" --only-binary :all: \
    --overrides <(printf '%s ; python_version < "3"\n' torch numpy) "$@"
}

case "${1:-}" in
  airflow)
    environment .venv constraints/airflow.txt airflow,s3,demo test lint stack docs
    (page) || say "   Airflow works without the page; \`make test\` installs npm as root on Debian, or skips the tests of the page"
    ;;
  kfp) environment .venv-kfp constraints/kfp.txt kfp,demo test ;;
  kfp-oldest) environment .venv-kfp-oldest constraints/kfp-oldest.txt kfp test ;;
  bench) environment .venv-bench constraints/bench.txt "" bench ;;
  airflow-version) environment "$3" "constraints/$2.txt" airflow,s3 test stack ;;
  release) environment .venv-release constraints/release.txt "" release ;;
  page) page ;;
  wheel)
    shift
    wheel "$@"
    ;;
  beside-torch)
    shift
    beside_torch "$@"
    ;;
  constraints)
    adopt_pip_settings
    install_uv
    compile constraints/airflow.txt "airflow s3 openlineage demo" test lint stack docs </dev/null
    # The newest version of each minor release, and the pre-release of the next one. The DAG processor of 3.2.2 does not
    # start with a FastAPI newer than 3.3 allows, and its `dag.test()` does not work with a newer svcs.
    for airflow in 3.1.8 3.2.2 3.4.0b2; do
      limits=("apache-airflow==$airflow" 'fastapi<0.137')
      [[ $airflow != 3.2.2 ]] || limits+=('svcs<26.2')
      printf '%s\n' "${limits[@]}" | compile "constraints/airflow-${airflow%.*}.txt" "airflow s3 openlineage" test stack
    done
    # Without these lower bounds, the resolver chooses an older kfp instead of the versions that the newest one pins.
    printf '%s\n' 'kfp>=2.17' 'kfp-kubernetes>=2.17' | compile constraints/kfp.txt "kfp demo" test
    oldest_kfp | compile constraints/kfp-oldest.txt kfp test
    compile constraints/bench.txt "" bench </dev/null
    compile constraints/release.txt "" release </dev/null
    ;;
  *) die "usage: scripts/environment.sh airflow|airflow-version|kfp|kfp-oldest|bench|release|wheel|beside-torch|page|constraints" ;;
esac
