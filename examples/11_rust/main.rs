// attune from Rust, through attune.h, whose structs are written out here; bindgen makes the same.
//
//   rustc --edition 2021 -O main.rs -L native=$(pkg-config --variable=libdir attune) -l attune
use std::ffi::{c_char, c_void, CStr};
use std::ptr::null;

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    device_type: i32,
    index: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DType {
    code: u8,
    bits: u8,
    lanes: u16,
}

const CPU: Device = Device { device_type: 1, index: 0 };
const F32: DType = DType { code: 2, bits: 32, lanes: 1 };

/// attune_tensor, which is DLPack's DLTensor.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: DType,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// The first members of attune_call: `struct_size` says that these are all.
#[repr(C)]
struct Call {
    struct_size: u32,
    flags: u32,
    context: *mut c_void,
    stream: *mut c_void,
}

#[repr(C)]
struct AttentionArgs {
    struct_size: u32,
    flags: u32,
    q: *const Tensor,
    k: *const Tensor,
    v: *const Tensor,
    g: *const Tensor,
    g_gamma: *const Tensor,
    gk: *const Tensor,
    gv: *const Tensor,
    slopes: *const Tensor,
    layer_idx: i64,
    num_layers: i64,
    initial_state: *const Tensor,
    cu_seqlens: *const Tensor,
    cu_seqlens_host: *const Tensor,
    scale: *const f64,
    o: *const Tensor,
    final_state: *const Tensor,
}

extern "C" {
    fn attune_version() -> *const c_char;
    fn attune_last_error() -> *const c_char;
    fn attune_context_set_policy(context: *mut c_void, policy: *const c_char) -> i32;
    fn attune_attention(args: *const AttentionArgs, call: *const Call) -> i32;
}

fn text(from: *const c_char) -> String {
    // attune's texts end with a zero, and live longer than this copy takes.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
}

/// Borrows `data` and `shape` as attune does: for the call alone.
fn tensor(data: &mut [f32], shape: &[i64]) -> Tensor {
    assert_eq!(data.len() as i64, shape.iter().product::<i64>());
    Tensor {
        data: data.as_mut_ptr().cast(),
        device: CPU,
        ndim: shape.len() as i32,
        dtype: F32,
        shape: shape.as_ptr(),
        strides: null(),
        byte_offset: 0,
    }
}

fn check(status: i32) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(text(unsafe { attune_last_error() })) }
}

/// Lightning attention with one slope a head, [tokens, heads, channels] each.
fn lightning_attention(
    q: &mut [f32], k: &mut [f32], v: &mut [f32], slopes: &mut [f32], shape: [i64; 3],
) -> Result<Vec<f32>, String> {
    let dense = [1, shape[0], shape[1], shape[2]];
    let slopes_shape = [slopes.len() as i64];
    let mut o = vec![0.0; q.len()];
    let (q, k, v) = (tensor(q, &dense), tensor(k, &dense), tensor(v, &dense));
    let (slopes, o_tensor) = (tensor(slopes, &slopes_shape), tensor(&mut o, &dense));
    let args = AttentionArgs {
        struct_size: std::mem::size_of::<AttentionArgs>() as u32,
        q: &q,
        k: &k,
        v: &v,
        slopes: &slopes,
        o: &o_tensor,
        // All zeros mean "not given".
        ..unsafe { std::mem::zeroed() }
    };
    let call = Call {
        struct_size: std::mem::size_of::<Call>() as u32,
        ..unsafe { std::mem::zeroed() }
    };
    check(unsafe { attune_attention(&args, &call) })?;
    Ok(o)
}

fn main() -> Result<(), String> {
    println!("attune {}", text(unsafe { attune_version() }));
    check(unsafe { attune_context_set_policy(std::ptr::null_mut(), c"db".as_ptr()) })?;

    let shape = [96, 2, 32];
    let values = |step: f32| (0..96 * 2 * 32).map(|i| (i as f32 * step).sin()).collect::<Vec<_>>();
    let (mut q, mut k, mut v) = (values(0.37), values(0.71), values(0.13));
    let o = lightning_attention(&mut q, &mut k, &mut v, &mut [0.5, 0.25], shape)?;

    // The recurrence, for head 1: decay, then write, then read.
    let mut state = [[0.0_f32; 32]; 32];
    let mut largest = 0.0_f32;
    for t in 0..96 {
        let row = (t * 2 + 1) * 32..(t * 2 + 2) * 32;
        let (q, k, v, o) = (&q[row.clone()], &k[row.clone()], &v[row.clone()], &o[row]);
        let mut expected = [0.0_f32; 32];
        for i in 0..32 {
            for j in 0..32 {
                state[i][j] = state[i][j] * (-0.25_f32).exp() + k[i] * v[j];
                expected[j] += q[i] * state[i][j] / (32.0_f32).sqrt();
            }
        }
        for j in 0..32 {
            largest = largest.max((expected[j] - o[j]).abs());
        }
    }
    println!("largest difference to the recurrence: {largest:.1e}");

    let mistake = lightning_attention(&mut q, &mut k, &mut v, &mut [0.5; 3], [96, 2, 32]);
    println!("a mistake: {}", mistake.unwrap_err());
    if largest < 1e-4 { Ok(()) } else { Err("it is not the same".into()) }
}
