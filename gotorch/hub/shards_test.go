package hub

import (
	"slices"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
)

// transformers 5 has max_shard_size="50GB" in save_pretrained, which are decimal ones.
func TestShardsAreAsLargeAsThoseOfTransformers(t *testing.T) {
	of := func(bytes int64) gotorch.Tensor {
		return gotorch.Empty([]int64{bytes}, gotorch.TensorOptions{DType: gotorch.Uint8, Device: gotorch.Meta})
	}
	for last, want := range map[int64][]string{
		20e9:     {"model.safetensors"},
		20e9 + 1: {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"},
	} {
		files, index := shardsOf(nn.StateDict{"a": of(30e9), "b": of(last)}, 0, defaultShardBytes)
		var names []string
		for _, f := range files {
			names = append(names, f.name)
		}
		if !slices.Equal(names, want) || index.Metadata.TotalSize != 30e9+last {
			t.Errorf("%v with %d bytes, not %v", names, index.Metadata.TotalSize, want)
		}
	}
}

// A number has five digits, or as many as it needs.
func TestShardsOfAnEarlierSaveAreKnown(t *testing.T) {
	for name, want := range map[string]bool{
		"model.safetensors": true, "model.safetensors.index.json": true, "model-00001-of-00002.safetensors": true,
		"model-100000-of-100001.safetensors": true, "pytorch_model-00001-of-00002.bin": true,
		"model-1-of-2.safetensors": false, "model.fp16.safetensors": false, "other.safetensors": false,
	} {
		if got := weightFile.MatchString(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
