package main

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/functorch"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/nn/utils"
	"gotorch.dev/gotorch/nn/utils/rnn"
)

// containers are changed after they were made, and hold modules of several kinds under names of several kinds.
func containers(_ tensors, f files) tensors {
	gotorch.ManualSeed(4)
	list := nn.ModuleList(nn.Linear(2, 3), nn.ReLU())
	list.Append(nn.Linear(3, 1))
	list.Insert(1, nn.BatchNorm1d(3))
	dict := nn.ModuleDict().Set("z", nn.Linear(1, 2)).Set("a", list).Set("gone", nn.Linear(9, 9))
	dict.Set("z", nn.Linear(2, 2, nn.LinearOptions{NoBias: true}))
	dict.Delete("gone")
	parameters := nn.ParameterList(gotorch.Rand([]int64{2}), gotorch.Rand([]int64{3, 1}, gotorch.TensorOptions{DType: gotorch.Float64}))
	parameters.Append(gotorch.Rand(nil))
	named := nn.ParameterDict().Set("w", gotorch.Rand([]int64{2, 3})).Set("b", gotorch.Rand([]int64{3}))
	named.Set("w", gotorch.Rand([]int64{1}))
	all := nn.ModuleDict().Set("dict", dict).Set("stored", parameters).Set("named", named)
	var lines []string
	for _, m := range []fmt.Stringer{list, dict, parameters, named, all, nn.ModuleList(), nn.ModuleDict(), nn.ParameterList(), nn.ParameterDict()} {
		lines = append(lines, m.String())
	}
	for name := range all.NamedParameters() {
		lines = append(lines, name)
	}
	for name := range all.NamedModules() {
		lines = append(lines, "module "+name)
	}
	for name := range dict.All() {
		lines = append(lines, "key "+name)
	}
	lines = append(lines, fmt.Sprint(list.Len(), dict.Len(), parameters.Len(), named.Len()))
	writeLines(f.path("containers.txt"), lines)
	out := tensors{}
	for name, t := range all.StateDict() {
		out[name] = t
	}
	return out
}

func sequences(in tensors, _ files) tensors {
	out := tensors{}
	packed := func(name string, p rnn.PackedSequence) {
		out[name+".data"], out[name+".batch_sizes"] = p.Data, p.BatchSizes
		if p.SortedIndices.Defined() {
			out[name+".sorted"], out[name+".unsorted"] = p.SortedIndices, p.UnsortedIndices
		}
		for _, batchFirst := range []bool{false, true} {
			padded, lengths := rnn.PadPackedSequence(p, rnn.PadPackedSequenceOptions{BatchFirst: batchFirst, PaddingValue: -1.5, TotalLength: 9})
			at := fmt.Sprintf("%s.%v", name, batchFirst)
			out[at+".padded"], out[at+".lengths"] = padded, lengths
		}
		for i, s := range rnn.UnpackSequence(p) {
			out[fmt.Sprintf("%s.unpacked.%d", name, i)] = s
		}
	}
	for _, name := range []string{"sorted", "mixed", "one"} {
		var list []gotorch.Tensor
		for i := 0; ; i++ {
			s, is := in[fmt.Sprintf("%s.%d", name, i)]
			if !is {
				break
			}
			list = append(list, s)
		}
		unsorted := name == "mixed"
		packed(name+".pack", rnn.PackSequence(list, rnn.PackSequenceOptions{NoEnforceSorted: unsorted}))
		for _, batchFirst := range []bool{false, true} {
			at := fmt.Sprintf("%s.%v", name, batchFirst)
			padded := rnn.PadSequence(list, rnn.PadSequenceOptions{BatchFirst: batchFirst, PaddingValue: 2})
			out[at+".right"] = padded
			out[at+".left"] = rnn.PadSequence(list, rnn.PadSequenceOptions{BatchFirst: batchFirst, PaddingSide: "left"})
			var lengths []int64
			for _, s := range list {
				lengths = append(lengths, s.Size(0))
			}
			n := gotorch.FromSlice(lengths)
			for i, s := range rnn.UnpadSequence(padded, n, rnn.UnpadSequenceOptions{BatchFirst: batchFirst}) {
				out[fmt.Sprintf("%s.unpad.%d", at, i)] = s
			}
			packed(at+".of", rnn.PackPaddedSequence(padded, n, rnn.PackPaddedSequenceOptions{BatchFirst: batchFirst, NoEnforceSorted: unsorted}))
		}
	}
	out["inverse"] = rnn.InvertPermutation(in["permutation"])
	return out
}

func functions(in tensors, _ files) tensors {
	out := tensors{}
	gotorch.ManualSeed(6)
	net := nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
	other := nn.StateDict{
		"0.weight": in["weight"].Clone().RequiresGrad_(), "3.bias": in["bias"].Clone().RequiresGrad_(),
		"1.running_mean": in["mean"].Clone(),
	}
	y := functorch.FunctionalCall(net, other, in["x"])
	y.Pow(2).Sum().Backward()
	out["called"] = y.Detach()
	for name, t := range other {
		out["given."+name] = t.Detach()
		if t.RequiresGrad() {
			out["grad."+name] = t.Grad()
		}
	}
	for name, t := range net.StateDict() {
		out["own."+name] = t
	}
	out["own.grad"] = net.Parameters()[1].Grad()

	f := func(x gotorch.Tensor) gotorch.Tensor { return x.Sin().Mul(x).CumSum(0) }
	value, jvp := functorch.Linearize(f, in["x"])
	out["linear.value"] = value
	out["linear.one"], out["linear.two"] = jvp(in["tangent"]), jvp(in["tangent"].MulScalar(-2))

	gotorch.ManualSeed(7)
	drop := nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.GELU(), nn.Linear(8, 2), nn.Dropout(0.2))
	x := in["x"].Clone().RequiresGrad_()
	again := gotorch.Checkpoint(drop.Forward, x)
	out["checkpoint"] = again.Detach()
	again.Pow(2).Sum().Backward()
	out["checkpoint.x"] = x.Grad()
	for name, p := range drop.NamedParameters() {
		out["checkpoint."+name] = p.Grad()
	}
	out["checkpoint.random"] = gotorch.Rand([]int64{2})

	gotorch.ManualSeed(8)
	var parts []func(gotorch.Tensor) gotorch.Tensor
	for _, l := range []nn.Layer{nn.Linear(3, 3), nn.Dropout(0.3), nn.Tanh(), nn.Linear(3, 3), nn.Dropout(0.3)} {
		parts = append(parts, l.Forward)
	}
	x = in["x"].Clone().RequiresGrad_()
	row := gotorch.CheckpointSequential(parts, 2, x)
	row.Sum().Backward()
	out["segments"], out["segments.x"] = row.Detach(), x.Grad()

	for _, bound := range []float64{0, 0.3, 100} {
		p, without := in["x"].Clone().RequiresGrad_(), in["bias"].Clone().RequiresGrad_()
		p.SetGrad(in["tangent"].Clone())
		utils.ClipGradValue_([]gotorch.Tensor{p, without}, bound)
		out[fmt.Sprintf("clipped.%g", bound)] = p.Grad()
		if without.Grad().Defined() {
			panic("a gradient out of nothing")
		}
	}
	return out
}
