#!/usr/bin/env bash
# Collect three programs in many layouts, a product in many tiles and a program with many options,
# and look at what came out. Needs the extra `collect`
#   bash solution/collecting/examples/worked_example.sh FOLDER [MINUTES of each command]
set -euo pipefail
examples=$(cd "$(dirname "$0")" && pwd)
out=$1
minutes=${2:-9}
fastslow=${FASTSLOW:-fastslow}
configs=${CONFIGS:-60}

"$fastslow" collect layout "$examples"/{mlp,cnn}.py --out "$out" --minutes "$minutes" --configs "$configs"
"$fastslow" collect layout "$examples/transformer.py" --collection layout:nlp:random \
    --out "$out" --minutes "$minutes" --configs "$configs"
"$fastslow" collect tile "$examples/product.py" --out "$out" --minutes "$minutes" --configs "$configs"
"$fastslow" collect options "$examples/transformer.py" --source nlp \
    --out "$out-options" --minutes "$minutes" --configs "$configs"
"$fastslow" collect report "$out"
"$fastslow" check "$out"
