package nn
import ("testing";"fmt";"gotorch.dev/gotorch")
func TestScratch(t *testing.T){
	gotorch.ManualSeed(0)
	m := Sequential(Conv2d(1,4,3),BatchNorm2d(4),ReLU(),MaxPool2d(2),Flatten(),Dropout(0.25),Linear(4*13*13,10))
	fmt.Println(m)
	for n,p := range m.tensors(false, parameter, buffer) { fmt.Println(n,p.Shape(),gotorch.Item[float64](p.Detach().To(gotorch.Float64).Sum())) }
	x := gotorch.Randn([]int64{2,1,28,28})
	m.Forward(x).Sum().Backward()
	m.Eval()
	fmt.Println(m.Forward(x).Shape(), m.NumParameters())
	m.To(gotorch.Float64)
	fmt.Println(m.Forward(x.To(gotorch.Float64)).DType(), m.Parameters()[0].Grad().DType())
	m.ZeroGrad()
}
