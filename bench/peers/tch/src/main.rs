//! The tch-rs worker of `make bench-peers`: reads "CASE ITERATIONS" lines, answers "WALL_NS CPU_NS", or "none"
//! for a case that it does not have. The loops are those of bench/goworker: written out where ops are small.

use std::collections::HashMap;
use std::io::BufRead;
use std::time::Instant;

use tch::nn::{self, Module, OptimizerConfig};
use tch::{Device, Kind, Tensor};

type Case = Box<dyn FnMut(usize)>;

fn floats(shape: &[i64]) -> Tensor {
    Tensor::randn(shape, (Kind::Float, Device::Cpu))
}

fn mlp(vs: &nn::VarStore) -> nn::Sequential {
    let root = vs.root();
    nn::seq()
        .add(nn::linear(&root / "0", 784, 128, Default::default()))
        .add_fn(|x| x.relu())
        .add(nn::linear(&root / "2", 128, 10, Default::default()))
}

fn forward(batch: i64) -> Case {
    let vs = nn::VarStore::new(Device::Cpu);
    let (net, x) = (mlp(&vs), floats(&[batch, 784]));
    Box::new(move |n| {
        let _vs = &vs;
        tch::no_grad(|| {
            for _ in 0..n {
                let _ = net.forward(&x);
            }
        })
    })
}

fn step<C: OptimizerConfig>(config: C, lr: f64) -> Case {
    let vs = nn::VarStore::new(Device::Cpu);
    let (net, x) = (mlp(&vs), floats(&[64, 784]));
    let y = Tensor::randint(10, [64], (Kind::Int64, Device::Cpu));
    let mut opt = config.build(&vs, lr).expect("an optimiser");
    Box::new(move |n| {
        let _vs = &vs;
        for _ in 0..n {
            opt.zero_grad();
            net.forward(&x).cross_entropy_for_logits(&y).backward();
            opt.step();
        }
    })
}

fn cases() -> HashMap<&'static str, Case> {
    let (a, b) = (floats(&[2, 2]), floats(&[2, 2]));
    let pair = || (a.shallow_clone(), b.shallow_clone());
    let mut cases: HashMap<&'static str, Case> = HashMap::new();
    let (x, y) = pair();
    cases.insert(
        "add",
        Box::new(move |n| (0..n).for_each(|_| drop(x.f_add(&y).unwrap()))),
    );
    let (x, y) = pair();
    cases.insert("mm", Box::new(move |n| (0..n).for_each(|_| drop(x.mm(&y)))));
    let (x, _) = pair();
    cases.insert(
        "relu",
        Box::new(move |n| (0..n).for_each(|_| drop(x.relu()))),
    );
    let (x, _) = pair();
    cases.insert(
        "transpose",
        Box::new(move |n| (0..n).for_each(|_| drop(x.transpose(0, 1)))),
    );
    cases.insert("mlp_forward_1", forward(1));
    cases.insert("mlp_forward_64", forward(64));
    cases.insert("mlp_step_64", step(nn::Sgd::default(), 0.01));
    cases.insert("mlp_adam_64", step(nn::Adam::default(), 1e-3));
    cases
}

fn cpu_nanoseconds() -> i64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

fn main() {
    tch::set_num_threads(1);
    tch::manual_seed(0);
    let mut cases = cases();
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let (name, count) = line.split_once(' ').expect("CASE ITERATIONS");
        let n = count.parse().expect("a number of iterations");
        match cases.get_mut(name) {
            None => println!("none"),
            Some(run) => {
                let (wall, cpu) = (Instant::now(), cpu_nanoseconds());
                run(n);
                println!("{} {}", wall.elapsed().as_nanos(), cpu_nanoseconds() - cpu);
            }
        }
    }
}
