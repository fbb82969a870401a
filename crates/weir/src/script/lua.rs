//! Scripts in Lua 5.4: without files, programs, modules, debugging and bytecode, and with bounds for instructions and memory.

use super::{Script, Ways};
use crate::cli::generate::search_goal;
use crate::outcome::{Outcome, answer};
use mlua::{
    ChunkMode, DebugEvent, Error, HookTriggers, Lua, LuaOptions, Result, StdLib, UserData,
    UserDataMethods, Value, VmState,
};
use serde_json::{Value as Json, json};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use weir_engine::search::Search;
use weir_engine::socket::Reply;

/// Memory of a script, bytes.
const MEMORY: usize = 16 << 20;

const NO_MEMORY: &str = "not enough memory: a script has 16 MiB";

/// Instructions between two waits, and between two looks at their number.
const INSTRUCTIONS: u64 = 10_000_000;
const LOOK_EACH: u32 = 100;

/// Longest time between two waits: some instructions about long strings take long.
const TIME: Duration = Duration::from_secs(5);

/// Longest sleep. Whether the sender has ended is checked after each.
const LOOK: Duration = Duration::from_millis(20);

/// Words of the error by which a script ends with its sender.
const OVER: &str = "the sender has ended";

/// Names that a script can use.
const KNOWN: &str = "_G _VERSION assert error ipairs math next pairs print rawequal rawget rawlen rawset select string table tonumber \
    tostring type weir";

const PRELUDE: &str = include_str!("prelude.lua");

/// Checks the syntax of a script. **Errors**: a line with the place.
pub fn check(script: &Script) -> std::result::Result<(), String> {
    let lua = bounded().map_err(|error| words(script, &error))?;
    let chunk = lua.load(&script.text).set_name(format!("@{}", script.name));
    let chunk = chunk.set_mode(ChunkMode::Text);
    chunk
        .into_function()
        .map(|_| ())
        .map_err(|error| words(script, &error))
}

/// Runs a script until it or its sender ends, with a message to `waits` for each wait. **Errors**: a line with the place.
pub fn run(
    script: &Script,
    ways: Ways,
    over: Arc<AtomicBool>,
    waits: mpsc::Sender<()>,
) -> std::result::Result<(), String> {
    let steering = Arc::clone(&ways.0.steering);
    let done = run_with(script, ways, &over, waits);
    let is_over = over.load(Ordering::Relaxed) || steering.is_over();
    match done {
        Err(error) if !is_over => Err(words(script, &error)),
        _ => Ok(()),
    }
}

/// A state with bounded memory and the libraries of tables, strings and numbers.
fn bounded() -> Result<Lua> {
    let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
    let lua = Lua::new_with(libraries, LuaOptions::new())?;
    lua.set_memory_limit(MEMORY)?;
    Ok(lua)
}

fn run_with(
    script: &Script,
    (remote, printed): Ways,
    over: &Arc<AtomicBool>,
    waits: mpsc::Sender<()>,
) -> Result<()> {
    let lua = bounded()?;
    let instructions = Rc::new(Cell::new(0));
    let (begun, stop) = (Instant::now(), Arc::clone(&remote.stop));
    let ask = lua.create_function(
        move |lua, (request, what, value): (String, Option<String>, Value)| {
            let mut object = json!({ "request": request });
            match what.as_deref() {
                Some("port") if value.is_nil() => {}
                Some("port") => object["port"] = json_of("port", &value),
                Some(what) => {
                    object["value"] = json_of(what, &value);
                    object["what"] = what.into();
                }
                None => {}
            }
            match remote.answer(&object) {
                Reply::Done(value) => Ok((lua_of(lua, &value)?, None)),
                Reply::Refused(why) => Ok((Value::Nil, Some(why))),
                _ => Ok((Value::Nil, Some("a script cannot ask that".to_owned()))),
            }
        },
    )?;
    let waited = Rc::new(Cell::new(begun));
    let (slept, is_over, halt) = (
        (Rc::clone(&instructions), Rc::clone(&waited)),
        Arc::clone(over),
        Arc::clone(&stop),
    );
    let sleep = lua.create_function(move |_, seconds: f64| {
        slept.0.set(0);
        let _ = waits.send(());
        let Ok(time) = Duration::try_from_secs_f64(seconds) else {
            return Ok((false, Some(format!("{seconds} is not a number of seconds"))));
        };
        let begun = Instant::now();
        while let Some(left) = time.checked_sub(begun.elapsed()).filter(|it| !it.is_zero()) {
            if is_over.load(Ordering::Relaxed) || halt.load(Ordering::Relaxed) {
                is_over.store(true, Ordering::Relaxed);
                return Ok((false, Some(OVER.to_owned())));
            }
            std::thread::sleep(left.min(LOOK));
        }
        slept.1.set(Instant::now());
        Ok((true, None))
    })?;
    let halted = Arc::clone(&stop);
    let time = lua.create_function(move |_, ()| Ok(begun.elapsed().as_secs_f64()))?;
    let is_over = Arc::clone(over);
    let finish = lua.create_function(move |_, ()| {
        is_over.store(true, Ordering::Relaxed);
        stop.store(true, Ordering::Relaxed);
        Ok((false, OVER))
    })?;
    let search = lua.create_function(|_, (goal, least, most): (String, f64, f64)| {
        let goal = search_goal(&goal);
        let made = goal.and_then(|it| Search::new(&[it.goal], (least, most), f64::INFINITY));
        Ok(match made {
            Ok(search) => (Some(Trials(search)), None),
            Err(why) => (None, Some(why)),
        })
    })?;
    let say = lua.create_function(move |_, text: String| match &printed {
        Some(printed) => {
            for line in text.lines() {
                printed.push(line.replace('\t', "  "));
            }
            Ok(())
        }
        None => match answer(&format!("{text}\n")) {
            Outcome::Done => Ok(()),
            _ => Err(Error::runtime("standard output takes nothing")),
        },
    })?;
    let prelude = lua.load(PRELUDE).set_name("=weir");
    prelude.call::<()>((ask, sleep, time, finish, search, say, KNOWN))?;
    let (over, name) = (Arc::clone(over), script.name.clone());
    let chunk_name = format!("@{name}");
    // An error about memory has no place.
    let line = Rc::new(Cell::new(0));
    let latest = Rc::clone(&line);
    let triggers = HookTriggers::new()
        .every_nth_instruction(LOOK_EACH)
        .every_line();
    lua.set_hook(
        triggers,
        move |_, debug| {
            if debug.event() == DebugEvent::Line {
                if debug.source().source.as_deref() == Some(&chunk_name) {
                    latest.set(debug.current_line().unwrap_or_default());
                }
                return Ok(VmState::Continue);
            }
            let count = instructions.get() + u64::from(LOOK_EACH);
            instructions.set(count);
            let line = debug.current_line().unwrap_or_default();
            let is_over = over.load(Ordering::Relaxed) || halted.load(Ordering::Relaxed);
            let so_much = match (count > INSTRUCTIONS, waited.get().elapsed() > TIME) {
                _ if is_over => return Err(Error::runtime(OVER)),
                (false, false) => return Ok(VmState::Continue),
                (true, _) => "10 000 000 instructions",
                (false, true) => "5 s",
            };
            Err(Error::runtime(format!(
                "{name}:{line}: {so_much} without a wait: is this loop endless? weir.sleep(SECONDS) waits"
            )))
        },
    )?;
    let chunk = lua.load(&script.text).set_name(format!("@{}", script.name));
    let done = chunk.set_mode(ChunkMode::Text).exec();
    done.map_err(|error| match error {
        Error::MemoryError(_) => {
            Error::runtime(format!("{}:{}: {NO_MEMORY}", script.name, line.get()))
        }
        error => error,
    })
}

/// A search whose trials a script makes.
struct Trials(Search);

impl UserData for Trials {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method_mut("next", |_, search, ()| {
            let trial = search.0.next();
            Ok(trial.map_or((None, None), |it| (Some(it.load), Some(it.seconds))))
        });
        methods.add_method_mut("tell", |_, search, received: f64| {
            search.0.tell(received.max(0.0) as u64);
            Ok(())
        });
        methods.add_method("bounds", |_, search, ()| {
            let bounds = search.0.bounds();
            let first = bounds.first();
            Ok((first.and_then(|it| it.lower), first.and_then(|it| it.upper)))
        });
    }
}

/// A value of a request: speeds are numbers, and all others are text.
fn json_of(what: &str, value: &Value) -> Json {
    match value {
        Value::Integer(number) if what == "speed" => (*number).into(),
        Value::Number(number) if what == "speed" => (*number).into(),
        Value::Integer(number) => number.to_string().into(),
        Value::Number(number) => number.to_string().into(),
        Value::String(text) => text.to_string_lossy().into(),
        _ => Json::Null,
    }
}

/// An answer: objects and lists are tables.
fn lua_of(lua: &Lua, answer: &Json) -> Result<Value> {
    Ok(match answer {
        Json::Null => Value::Nil,
        Json::Bool(is_set) => Value::Boolean(*is_set),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => Value::Integer(whole),
            None => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::String(lua.create_string(text)?),
        Json::Array(all) => {
            let all = all.iter().map(|item| lua_of(lua, item));
            let all: Vec<Value> = all.collect::<Result<_>>()?;
            Value::Table(lua.create_sequence_from(all)?)
        }
        Json::Object(members) => {
            let table = lua.create_table()?;
            for (name, value) in members {
                table.set(name.as_str(), lua_of(lua, value)?)?;
            }
            Value::Table(table)
        }
    })
}

/// An error as a line that begins with its place.
fn words(script: &Script, error: &Error) -> String {
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let at = |text: String| match text.starts_with(&format!("{}:", script.name)) {
        true => text,
        false => format!("{}: {text}", script.name),
    };
    match error {
        Error::CallbackError { traceback, cause } => {
            let why = words(script, cause);
            let bare = format!("{}: ", script.name);
            let place = traceback.lines().map(str::trim).find_map(|line| {
                let rest = line.strip_prefix(&format!("{}:", script.name))?;
                rest.split(':').next().map(str::to_owned)
            });
            match (place, why.strip_prefix(&bare)) {
                (Some(line), Some(why)) => format!("{}:{line}: {why}", script.name),
                _ => why,
            }
        }
        Error::MemoryError(_) => at(NO_MEMORY.to_owned()),
        Error::SyntaxError { message, .. } | Error::RuntimeError(message) => at(first(message)),
        error => at(first(&error.to_string())),
    }
}
