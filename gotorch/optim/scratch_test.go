package optim
import ("testing";"gotorch.dev/gotorch";"gotorch.dev/gotorch/nn";F "gotorch.dev/gotorch/nn/functional")
func BenchmarkMLP(b *testing.B){
	gotorch.SetNumThreads(1)
	m := nn.Sequential(nn.Linear(784,128),nn.ReLU(),nn.Linear(128,10))
	x := gotorch.Randn([]int64{64,784}); y := gotorch.Randint(10,[]int64{64})
	for name, o := range map[string]Optimizer{"sgd":SGD(m.Parameters(),SGDOptions{LR:1e-4}),"sgdfused":SGD(m.Parameters(),SGDOptions{LR:1e-4,Fused:true}),"adamw":AdamW(m.Parameters(),AdamWOptions{LR:1e-6}),"adamwfused":AdamW(m.Parameters(),AdamWOptions{LR:1e-6,Fused:true})} {
		step := func(){ o.ZeroGrad(); F.CrossEntropy(m.Forward(x),y).Backward(); o.Step() }
		b.Run(name+"/gc", func(b *testing.B){ for b.Loop() { step() } })
		b.Run(name+"/scope", func(b *testing.B){ for b.Loop() { gotorch.Scope0(func(*gotorch.ScopeHandle){step()}) } })
		b.Run(name+"/steponly", func(b *testing.B){ F.CrossEntropy(m.Forward(x),y).Backward(); for b.Loop() { o.Step() } })
	}
	fwd := func(){ m.Forward(x) }
	b.Run("fwd/gc", func(b *testing.B){ for b.Loop() { fwd() } })
	b.Run("fwd/scope", func(b *testing.B){ for b.Loop() { gotorch.Scope0(func(*gotorch.ScopeHandle){fwd()}) } })
}
